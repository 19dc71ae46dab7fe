import numpy as np
import pytest

from mara_ray.simulator.reward import inverse_log_range, log_progress, shaped_reward


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(4.0, 0.0), (2.0, 0.5), (1.0, 1.0), (0.5, 1.0), (8.0, 0.0), (np.sqrt(8), 0.25)],
)
def test_log_progress_from_4_to_1(loss, expected):
    log_initial, log_target = np.log([4.0]), np.log([1.0])
    inverse_range = inverse_log_range(log_initial, log_target)
    assert log_progress(log_initial, np.log([loss]), log_target, inverse_range)[0] == pytest.approx(expected)


def test_a_target_that_is_met_untrained_pays_no_progress():
    log_initial, log_target = np.log([1.0, 1.0]), np.log([1.0, 2.0])
    inverse_range = inverse_log_range(log_initial, log_target)
    assert inverse_range.tolist() == [0.0, 0.0]
    assert log_progress(log_initial, np.log([0.5, 0.5]), log_target, inverse_range).tolist() == [0.0, 0.0]


def test_the_shaped_reward():
    reward_B = shaped_reward(np.array([1, 0]), np.array([1.5, 0.0]), np.array([0.5, 0.25]), weight=0.1)
    assert reward_B.tolist() == pytest.approx([0.9, 0.025])
