"""The baseline from rollouts of the same workload, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mara_ray.allocator.mat.baseline import with_workload_baseline


def test_by_hand() -> None:
    """Two rollouts of one workload, one of another; decisions at steps 0 and 2, and at step 1."""
    reward_TB = np.array([[1.0, 0.0, 5.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    value_R = np.array([0.5, 1.0, 3.0, 7.0])
    step_R, episode_R = np.array([0, 2, 1, 0]), np.array([0, 0, 1, 2])
    corrected_R = with_workload_baseline(value_R, step_R, episode_R, reward_TB, np.array([0, 0, 1]))
    # At step 0 the other rollout has not decided yet; at step 2 it was 2 - 3 short of its value; at step 1
    # the first rollout's latest surprise is 2 - 0.5; and the last is alone with its workload.
    assert corrected_R.tolist() == pytest.approx([0.5, 1.0 - 1.0, 3.0 + 1.5, 7.0])


@given(seed=st.integers(0, 1000), shift=st.floats(-5, 5))
def test_what_the_workload_brings_to_all_is_taken_out(seed: int, shift: float) -> None:
    """The same addition to the last reward of all rollouts leaves return less baseline as it is."""
    rng = np.random.default_rng(seed)
    reward_TB = rng.normal(size=(6, 4))
    step_R, episode_R = np.repeat(np.arange(6), 4), np.tile(np.arange(4), 6)
    value_R = rng.normal(size=24)

    def advantage(reward_TB: np.ndarray) -> np.ndarray:
        to_go_TB = reward_TB[::-1].cumsum(0)[::-1]
        baseline_R = with_workload_baseline(value_R, step_R, episode_R, reward_TB, np.zeros(4, np.int64))
        return to_go_TB[step_R, episode_R] - baseline_R

    moved_TB = reward_TB.copy()
    moved_TB[-1] += shift
    assert advantage(moved_TB) == pytest.approx(advantage(reward_TB), abs=1e-4)
