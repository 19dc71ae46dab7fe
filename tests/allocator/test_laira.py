import dataclasses

import numpy as np
import pytest

from mara_ray.allocator.drift import DriftTracker
from mara_ray.allocator.laira import LaiRA
from mara_ray.predictor.kalman import KalmanPredictor, filter_states
from tests.allocator.test_queueing import observation_of


def observation_at(points, losses, targets, windows, num_nodes=1, held=None, tasks=None, forecast=100):
    """One episode in which every task began at loss 1."""
    observation = observation_of(
        *[(0, 10 + window, seen, forecast) for window, seen in zip(windows, points, strict=True)],
        num_nodes=num_nodes,
        held=held,
    )
    return dataclasses.replace(
        observation,
        task_BK=np.array([tasks if tasks is not None else range(len(points))], np.int32),
        loss_BK=np.array([losses], np.float32),
        initial_loss_BK=np.ones((1, len(points)), np.float32),
        target_BK=np.array([targets], np.float32),
    )


def power_law(exponent, length=40):
    return (np.arange(1, length + 1) ** -exponent).astype(np.float32)


def tracked(curves, upto, targets=None):
    """A tracker that has seen curves point by point."""
    tracker = DriftTracker(1, len(curves))
    for seen in range(1, upto + 1):
        losses = [curve[seen - 1] for curve in curves]
        tracker.update(
            observation_at([seen] * len(curves), losses, targets or [0.1] * len(curves), [50] * len(curves))
        )
    return tracker


def test_the_tracker_is_the_kalman_predictors_filter():
    rng = np.random.default_rng(0)
    curves = [power_law(0.5) * rng.lognormal(0, 0.05, 40).astype(np.float32) for _ in range(3)]
    curves = [curve / curve[0] for curve in curves]
    tracker = tracked(curves, 30)
    expected_KS = filter_states(np.stack(curves)[:, :30])[:, -1]
    np.testing.assert_allclose(tracker._state_BKS[0], expected_KS, rtol=1e-5, atol=1e-7)
    # and so its expectation crosses the target when the predictor says.
    target_KG = np.full((3, 1), 0.16, np.float32)
    steps_K = KalmanPredictor().predict(np.stack(curves), np.full(3, 30), target_KG)[:, 0, 0]
    for k, steps in enumerate(steps_K.tolist()):
        if 1 < steps < 10:
            assert tracker.expected(np.full((1, 3), float(steps)))[0, k] <= np.log(0.16)
            assert tracker.expected(np.full((1, 3), steps - 1.0))[0, k] > np.log(0.16)
    assert any(1 < steps < 10 for steps in steps_K)


def test_a_point_that_is_not_new_changes_nothing_and_a_new_task_starts_afresh():
    curve = power_law(0.5)
    tracker = tracked([curve, curve], 6)
    before_KS = tracker._state_BKS[0].copy()
    again = observation_at([6, 1], [curve[5], 1.0], [0.1, 0.1], [50, 50], tasks=[0, 5])
    tracker.update(again)
    assert tracker.fresh_BK.tolist() == [[False, True]]
    np.testing.assert_array_equal(tracker._state_BKS[0, 0], before_KS[0])
    assert not tracker._state_BKS[0, 1].any()


def test_the_width_is_that_of_its_formula():
    tracker = tracked([power_law(0.5)], 5)
    features_LD = np.stack([np.log(np.arange(1.0, 6)), np.ones(5)], axis=1)
    weight_L = 0.9 ** np.arange(4, -1, -1)
    norm_DD = 1e-2 * np.eye(2) + (features_LD.T * weight_L) @ features_LD
    x = np.array([np.log(5 + 4.0), 1.0])
    beta = np.sqrt(1e-3 * (np.log(np.linalg.det(norm_DD) / 1e-4) + 2 * np.log(10))) + 0.1
    expected = beta * np.sqrt(x @ np.linalg.solve(norm_DD, x))
    assert tracker.width(np.full((1, 1), 4.0))[0, 0] == pytest.approx(expected)


def play(allocator, curves, targets, windows, num_steps, num_nodes=1, arrivals=()):
    """Serve tasks on their curves; who was served in each step. An arrival is (step, slot)."""
    allocator.reset(1)
    points, tasks, held, served = [1] * len(curves), list(range(len(curves))), [0] * num_nodes, []
    for step in range(num_steps):
        for when, slot in arrivals:
            if when == step:
                points[slot], tasks[slot] = 1, tasks[slot] + len(curves)
        losses = [float(curve[seen - 1]) for curve, seen in zip(curves, points, strict=True)]
        observation = observation_at(points, losses, targets, windows, num_nodes, held, tasks)
        held = allocator.allocate(observation)[0].tolist()
        served.append(held[0] if num_nodes == 1 else set(held))
        for slot in held:
            points[slot - 1] += slot > 0
    return served


def fed(curves, targets, windows, upto):
    """LaiRA after so many points of all curves, and the last observation."""
    allocator = LaiRA()
    for seen in range(1, upto + 1):
        losses = [curve[seen - 1] for curve in curves]
        observation = observation_at([seen] * len(curves), losses, targets, windows)
        allocator.allocate(observation)
    return allocator, observation


def judged(allocator, observation, slice_points=4.0):
    slice_BK = np.full(observation.active_BK.shape, slice_points)
    return allocator._judge(observation, allocator._tracker, slice_BK, 1.0)


def test_a_task_is_kept_if_its_extrapolation_meets_the_target_in_time():
    # s^-0.5 meets 0.2 at 25 points: 15 steps from the tenth are enough, with a margin for the filter.
    curve = power_law(0.5)
    kept_BK, _ = judged(*fed([curve] * 3, [0.2, 0.2, 0.01], [12, 20, 20], 10))
    assert kept_BK.tolist() == [[False, True, False]]
    kept_BK, _ = judged(*fed([curve] * 3, [0.2, 0.2, 0.01], [12, 20, 20], 3))
    assert kept_BK.all()


def test_what_is_not_kept_gets_only_the_nodes_that_are_left(monkeypatch):
    verdict = np.array([[False, True, True]]), np.array([[9.0, 1.0, 2.0]])
    monkeypatch.setattr(LaiRA, "_judge", lambda *_: verdict)
    for num_nodes, served in ((1, {3}), (2, {2, 3}), (3, {1, 2, 3})):
        observation = observation_at([9] * 3, [0.5] * 3, [0.1] * 3, [90] * 3, num_nodes)
        assert set(LaiRA().allocate(observation)[0]) == served


def test_the_ratio_of_the_rates_decides():
    # Alike but for the target: the nearer one is more ahead of its need.
    curve = power_law(0.5, 200)
    allocator, observation = fed([curve] * 2, [0.12, 0.1], [150, 150], 30)
    tracker, losses, slice_BK = allocator._tracker, [curve[29]] * 2, np.full((1, 2), 4.0)
    kept_BK, ratio_BK = judged(allocator, observation)
    assert kept_BK.tolist() == [[True, True]]
    way_K = np.log(losses) - np.log([0.12, 0.1])
    required_K = way_K / (np.log(30 + 150) - np.log(30))
    likely = tracker.expected(slice_BK)[0, 0] - tracker.width(slice_BK)[0, 0]
    predicted = (np.log(losses[0]) - likely) / (np.log(34) - np.log(30))
    np.testing.assert_allclose(ratio_BK[0], predicted / required_K, rtol=1e-5)
    assert ratio_BK[0, 0] > ratio_BK[0, 1]


def test_a_node_keeps_its_task_for_the_first_slice_and_an_arrival_ends_it():
    curve = power_law(0.5)
    served = play(LaiRA(), [curve, curve, curve], [0.3, 0.2, 0.2], [90, 60, 60], 4)
    assert len(set(served)) == 1
    first = served[0]
    other = 3 if first != 3 else 2
    # The task that comes is the only one whose target is as good as met: it has the highest ratio.
    targets = [0.3, 0.2, 0.2]
    targets[other - 1] = 0.999
    interrupted = play(LaiRA(), [curve] * 3, targets, [90, 60, 60], 4, arrivals=[(2, other - 1)])
    assert interrupted[2] == other


def test_slices_shorten_when_the_error_rises_and_lengthen_when_it_falls():
    allocator = LaiRA()
    observation = observation_at([9], [0.5], [0.1], [90])
    allocator.allocate(observation)
    tracker = allocator._tracker
    tracker.fresh_BK = np.zeros((1, 1), bool)

    def slice_after(error):
        allocator._left_BK[:] = 0
        allocator._expected_BK[:] = tracker.log_loss_BK + error
        allocator._adapt(tracker)
        return float(allocator._slice_BK[0, 0])

    assert slice_after(0.1) == 4.0  # there is nothing to compare with
    assert slice_after(-0.2) == pytest.approx(4 - 10 * 0.1)  # the first change: 0.2 - 0.1
    assert slice_after(0.1) == pytest.approx(3 + 10 * 0.1 + 10 * 0.2)  # change -0.1, after 0.1
    assert slice_after(5.0) == 1.0
    assert slice_after(0.0) == 16.0
