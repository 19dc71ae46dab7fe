"""Targets as training draws them, and what networks are told of them."""

from __future__ import annotations

import numpy as np
import pytest

from mara_ray.predictor.questions import draw_targets, target_questions


def test_what_is_told_of_a_target() -> None:
    question_Q = target_questions(np.array([8.0]), np.array([2.0]), np.array([[1.0]]))[0, 0]
    assert question_Q.tolist() == pytest.approx([-np.log(2), -np.log(8), np.log(np.log(2))])
    met_Q = target_questions(np.array([8.0]), np.array([2.0]), np.array([[3.0]]))[0, 0]
    assert met_Q[0] == -1e-4 and np.isfinite(met_Q).all()


def test_targets_are_between_the_fractions_and_not_met() -> None:
    """A loss of e^-n, n = 0..10: after four points three tenths of the drop are done."""
    lowest_CL = np.exp(-np.arange(11.0))[None].astype(np.float32)
    seen_CP = np.array([[1, 4, 9, 11]])
    low_CP, weight_CP = draw_targets(lowest_CL, seen_CP, np.zeros((1, 4)), (0.2, 1.1))
    assert -np.log(low_CP[0]) == pytest.approx([2, 3, 8, 10], rel=1e-5)
    assert weight_CP[0] == pytest.approx([1, 8 / 9, 3 / 9, 1 / 9], rel=1e-5)
    high_CP, _ = draw_targets(lowest_CL, seen_CP, np.ones((1, 4)), (0.2, 1.1))
    assert -np.log(high_CP[0]) == pytest.approx([11] * 4, rel=1e-5)
    several_CPG, _ = draw_targets(lowest_CL, seen_CP, np.zeros((1, 4, 3)), (0.2, 1.1))
    assert (several_CPG == low_CP[..., None]).all()


def test_a_weighted_mean_is_one_over_all_targets() -> None:
    """Drawn from the unmet ones and weighted: as drawn from all, with nothing from those that are met."""
    rng = np.random.default_rng(0)
    lowest_CL = np.exp(-np.arange(11.0))[None].astype(np.float32)
    seen_CP = rng.integers(4, 11, (1, 20000))
    target_CP, weight_CP = draw_targets(lowest_CL, seen_CP, rng.random(seen_CP.shape), (0.3, 1.05))
    fraction_CP = rng.uniform(0.3, 1.05, seen_CP.shape)
    open_CP = fraction_CP * 10 > seen_CP - 1
    expected = (fraction_CP * open_CP).sum() / open_CP.sum()
    assert (-np.log(target_CP) / 10 * weight_CP).sum() / weight_CP.sum() == pytest.approx(expected, abs=0.01)
    assert weight_CP.mean() == pytest.approx(open_CP.mean(), abs=0.01)


def test_a_constant_curve_has_targets_too() -> None:
    target_CP, weight_CP = draw_targets(
        np.ones((1, 5), np.float32), np.array([[4]]), np.full((1, 1), 0.5), (0.3, 1.05)
    )
    assert 0.99 < target_CP[0, 0] < 1 and weight_CP[0, 0] == 1
