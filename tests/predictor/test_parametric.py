"""WLS against a fit computed another way, and against curves whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.parametric import WLSPredictor, fit_power_law
from mara_ray.predictor.protocol import Predictor

FRACTIONS = (0.3, 0.6, 0.9, 1.05)


def power_law(num_points: int, scale: float = 2.0, exponent: float = 0.5) -> np.ndarray:
    return (scale * np.arange(1, num_points + 1.0) ** -exponent)[None].astype(np.float32)


def test_two_points_by_hand() -> None:
    """Losses e and 1 at s = 1, 2: A = [[x^2, x], [x, 1.9]] with x = ln 2, b = (0, 0.9)."""
    slope_CL, intercept_CL = fit_power_law(np.array([[np.e, 1.0]]))
    determinant = (0.480453 + 0.001) * 1.901 - 0.480453
    assert slope_CL[0, 1] == pytest.approx(-0.693147 * 0.9 / determinant, rel=1e-5)
    assert intercept_CL[0, 1] == pytest.approx((0.480453 + 0.001) * 0.9 / determinant, rel=1e-5)
    assert slope_CL[0, 0] == 0.0  # one point has no slope
    assert intercept_CL[0, 0] == pytest.approx(1 / 1.001)


def test_recursion_equals_the_weighted_normal_equations(toy_bank: CurveBank) -> None:
    losses_L = toy_bank.ema_CL[7].astype(np.float64)
    slope_CL, intercept_CL = fit_power_law(losses_L[None])
    for num_seen in (4, 17, 60):
        x = np.stack([np.log(np.arange(1, num_seen + 1)), np.ones(num_seen)], axis=1)
        weights = 0.9 ** np.arange(num_seen - 1, -1, -1)
        normal = x.T @ (weights[:, None] * x) + 1e-3 * np.eye(2)
        theta = np.linalg.solve(normal, x.T @ (weights * np.log(losses_L[:num_seen])))
        assert slope_CL[0, num_seen - 1] == pytest.approx(theta[0], rel=1e-8)
        assert intercept_CL[0, num_seen - 1] == pytest.approx(theta[1], rel=1e-8)


def test_a_power_law_is_extrapolated_to_its_crossing() -> None:
    """2 s^-0.5 meets 0.2 at s = 100: 60 steps after 40 points (the ridge moves it by a little)."""
    steps = WLSPredictor().predict(power_law(200), np.array([40]), np.array([[0.2]], np.float32))
    assert steps.shape == (1, 1, 1)
    assert abs(int(steps[0, 0, 0]) - 60) <= 2


def test_cap_without_enough_points_or_without_a_falling_fit() -> None:
    predictor = WLSPredictor()
    target = np.array([[0.2]], np.float32)
    assert predictor.predict(power_law(200), np.array([3]), target)[0, 0, 0] == 197
    assert predictor.predict(power_law(200), np.array([4]), target)[0, 0, 0] < 196
    rising = power_law(200, exponent=-0.1)
    assert predictor.predict(rising, np.array([40]), target)[0, 0, 0] == 160
    assert predictor.predict(power_law(50), np.array([40]), target)[0, 0, 0] == 10  # beyond the cap


def test_met_targets_need_nothing_even_after_the_loss_rose_again() -> None:
    losses = np.array([[1.0, 0.4, 0.9, 0.9, 0.9, 0.9]], np.float32)
    assert WLSPredictor().predict(losses, np.array([5]), np.array([[0.5, 0.4, 0.3]], np.float32))[
        0, :, 0
    ].tolist() == [0, 0, 1]


def test_live_equals_curves_and_sees_no_future(toy_bank: CurveBank) -> None:
    predictor = WLSPredictor()
    assert isinstance(predictor, Predictor)
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    steps_CLGN = predictor.predict_curves(ema_CL, target_CG)
    rng = np.random.default_rng(0)
    for batch in (1, 3, 25):
        row = rng.integers(0, len(ema_CL), batch)
        seen = rng.integers(1, toy_bank.length_points + 1, batch)
        hidden = np.arange(toy_bank.length_points) >= seen[:, None]
        other_future = np.where(hidden, rng.uniform(0.01, 9, hidden.shape), ema_CL[row]).astype(np.float32)
        steps = predictor.predict(other_future, seen, target_CG[row])
        assert steps.dtype == np.uint16
        assert np.array_equal(steps, steps_CLGN[row, seen - 1])
