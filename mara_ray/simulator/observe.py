"""What an allocator may see, and nothing else: never the true demand or the unseen future.

Axis letters: B episodes, M nodes, K slots, N samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Observation:
    """One step of B episodes as an allocator sees it. Entries of empty slots are 0 (`task_BK`: -1)."""

    time_B: np.ndarray  # int32, the current step t
    active_BK: np.ndarray  # bool, the slot holds a task
    task_BK: np.ndarray  # int32, the task's number in its episode: its identity over time
    num_seen_BK: np.ndarray  # int32, points seen, the untrained loss included
    loss_BK: np.ndarray  # float32, the latest smoothed loss
    initial_loss_BK: np.ndarray  # float32
    target_BK: np.ndarray  # float32
    progress_BK: np.ndarray  # float32, log progress q in [0, 1]
    arrival_BK: np.ndarray  # int32, step of arrival
    deadline_BK: np.ndarray  # int32, steps d - 1 and before count
    remaining_BKN: np.ndarray  # float32, forecast steps still needed, sorted over samples
    node_slot_BM: np.ndarray  # int32, slot (1..K) the node served last, if that task is still there; else 0
    node_speed_M: np.ndarray  # float32, points of service per step
    num_waiting_B: np.ndarray  # int32, tasks in the outer queue
    episode_steps: int  # T
    cap_points: int  # L
