"""A baseline from several rollouts of the same workload: what no choice of the policy could change.

A value function cannot know which tasks will come, so most of what a return differs from it is the workload's
doing, not the policy's. Rollouts of one workload share that part; the mean of what the others found
estimates it, and added to the value it takes it out of the advantages without bias. Axis letters: T steps,
B episodes, W workloads, G rollouts of each, R decisions.
"""

from __future__ import annotations

import numpy as np


def with_workload_baseline(
    value_R: np.ndarray, step_R: np.ndarray, episode_R: np.ndarray, reward_TB: np.ndarray, group_B: np.ndarray
) -> np.ndarray:
    """Values plus the mean, over the other rollouts of the workload, of the latest return less value.

    Args:
        value_R: V at each decision, in units of return.
        step_R: when it was made.
        episode_R: where.
        reward_TB: rewards.
        group_B: int, the number of each episode's workload.

    Returns:
        float32 (R,); the values themselves where no other rollout has had a decision yet.
    """
    to_go_TB = reward_TB[::-1].cumsum(0)[::-1]
    surprise_TB = np.zeros(reward_TB.shape)
    surprise_TB[step_R, episode_R] = to_go_TB[step_R, episode_R] - value_R
    decided_TB = np.full(reward_TB.shape, -1)
    decided_TB[step_R, episode_R] = step_R
    latest_TB = np.maximum.accumulate(decided_TB, axis=0)
    known_TB = latest_TB >= 0
    held_TB = np.where(known_TB, np.take_along_axis(surprise_TB, np.maximum(latest_TB, 0), 0), 0.0)
    member_BW = (group_B[:, None] == np.unique(group_B)).astype(np.float64)
    others_TB = (held_TB @ member_BW) @ member_BW.T - held_TB
    count_TB = (known_TB @ member_BW) @ member_BW.T - known_TB
    baseline_TB = others_TB / np.maximum(count_TB, 1)
    return (value_R + baseline_TB[step_R, episode_R]).astype(np.float32)
