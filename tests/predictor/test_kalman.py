"""LaiRA's filter against plain matrix algebra, and its forecasts against futures drawn step by step."""

from __future__ import annotations

import numpy as np
import pytest

from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.kalman import DRIFT_STEPS, KalmanPredictor, filter_states, kalman_gains
from mara_ray.predictor.protocol import Predictor

FRACTIONS = (0.3, 0.6, 0.9, 1.05)
F = np.array(
    [
        [1, 0, 1, 0, 0.5, 0],
        [0, 1, 0, 1, 0, 0.5],
        [0, 0, 1, 0, 1, 0],
        [0, 0, 0, 1, 0, 1],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]
)
Q = np.diag([1e-4, 1e-4, 1e-6, 1e-6, 1e-8, 1e-8])
R = 1e-3


def slow_states(losses_L: np.ndarray) -> list[np.ndarray]:
    """One curve, the textbook's equations, with the covariance updated in Joseph's form."""
    state, covariance, states = np.zeros(6), np.diag([1, 1, 1e-6, 1e-6, 1e-8, 1e-8]), []
    for point, loss in enumerate(losses_L):
        if point > 0:
            state, covariance = F @ state, F @ covariance @ F.T + Q
        h = np.array([[np.log(point + 1), 1, 0, 0, 0, 0]])
        gain = covariance @ h.T @ np.linalg.inv(h @ covariance @ h.T + R)
        state = state + gain @ (np.log(loss / losses_L[0]) - h @ state)
        left = np.eye(6) - gain @ h
        covariance = left @ covariance @ left.T + gain @ gain.T * R
        states.append(state)
    return states


def slow_steps(state: np.ndarray, num_seen: int, log_target: float, length: int) -> int:
    """Walk F^k step by step; after `DRIFT_STEPS` only ln s moves on."""
    for ahead in range(1, length - num_seen + 1):
        if ahead <= DRIFT_STEPS:
            state = F @ state
        if state[0] * np.log(num_seen + ahead) + state[1] <= log_target:
            return ahead
    return length - num_seen


def power_law(num_points: int, scale: float = 2.0, exponent: float = 0.5) -> np.ndarray:
    return (scale * np.arange(1, num_points + 1.0) ** -exponent)[None].astype(np.float32)


def test_first_gains_by_hand() -> None:
    """At s = 1, H = (0, 1, 0...) and P = diag(1, 1, 1e-6...): the gain is 1 / 1.001 on the level alone.

    Then P_11 = 1 - 1 / 1.001 = 0.000999, and after one step of F and Q the theta block of P is
    diag(1.000101, 0.001100), each with 1e-6 + 2.5e-9 from the drift; H = (ln 2, 1, 0...).
    """
    gain_LS = kalman_gains(2)
    assert gain_LS[0] == pytest.approx([0, 1 / 1.001, 0, 0, 0, 0])
    slope, level = 1 + 1e-6 + 0.25e-8 + 1e-4, 1 - 1 / 1.001 + 1e-6 + 0.25e-8 + 1e-4
    innovation = np.log(2) ** 2 * slope + level + 1e-3
    assert gain_LS[1, :2] == pytest.approx([np.log(2) * slope / innovation, level / innovation], rel=1e-9)
    drift = 1e-6 + 0.5e-8
    assert gain_LS[1, 2:4] == pytest.approx([np.log(2) * drift / innovation, drift / innovation], rel=1e-9)


def test_filter_equals_plain_matrix_algebra(toy_bank: CurveBank) -> None:
    rows = [2, 23, 51]
    state_CLS = filter_states(toy_bank.ema_CL[rows])
    assert state_CLS.shape == (3, toy_bank.length_points, 6)
    for state_LS, row in zip(state_CLS, rows, strict=True):
        expected = slow_states(toy_bank.ema_CL[row].astype(np.float64))
        np.testing.assert_allclose(state_LS, expected, rtol=1e-6, atol=1e-10)


def test_forecasts_equal_a_walk_through_the_future(toy_bank: CurveBank) -> None:
    """Every prefix of three curves, three targets each."""
    length, predictor = toy_bank.length_points, KalmanPredictor()
    for row in (5, 30, 44):
        losses_L = toy_bank.ema_CL[row].astype(np.float64)
        target_G = losses_L.min() * np.array([1.3, 1.1, 0.9])
        steps_LG = predictor.predict_curves(losses_L[None], target_G[None])[0, :, :, 0]
        states = slow_states(losses_L)
        for num_seen in range(4, length + 1):
            for level, target in enumerate(target_G):
                met = losses_L[:num_seen].min() <= target
                log_target = np.log(target / losses_L[0])
                expected = 0 if met else slow_steps(states[num_seen - 1], num_seen, log_target, length)
                assert steps_LG[num_seen - 1, level] == expected


def test_a_power_law_is_extrapolated_to_its_crossing() -> None:
    """2 s^-0.5 meets 0.2 at s = 100: 60 steps after 40 points."""
    steps = KalmanPredictor().predict(power_law(200), np.array([40]), np.array([[0.2]], np.float32))
    assert steps.shape == (1, 1, 1)
    assert abs(int(steps[0, 0, 0]) - 60) <= 2


def test_cap_without_enough_points_or_without_a_falling_fit() -> None:
    predictor = KalmanPredictor()
    target = np.array([[0.2]], np.float32)
    assert predictor.predict(power_law(200), np.array([3]), target)[0, 0, 0] == 197
    assert predictor.predict(power_law(200), np.array([4]), target)[0, 0, 0] < 196
    assert KalmanPredictor(41).predict(power_law(200), np.array([40]), target)[0, 0, 0] == 160
    rising = power_law(200, exponent=-0.1)
    assert predictor.predict(rising, np.array([40]), target)[0, 0, 0] == 160
    assert predictor.predict(power_law(50), np.array([40]), target)[0, 0, 0] == 10  # beyond the cap


def test_cap_for_a_constant_curve() -> None:
    steps_L = KalmanPredictor().predict_curves(np.full((1, 80), 0.7), np.array([[0.69]]))[0, :, 0, 0]
    assert np.array_equal(steps_L, 80 - np.arange(1, 81))


def test_met_targets_need_nothing_even_after_the_loss_rose_again() -> None:
    losses = np.array([[1.0, 0.4, 0.9, 0.9, 0.9, 0.9]], np.float32)
    steps = KalmanPredictor().predict(losses, np.array([5]), np.array([[0.5, 0.4, 0.3]], np.float32))
    assert steps[0, :, 0].tolist() == [0, 0, 1]


def test_the_scale_of_the_loss_does_not_matter(toy_bank: CurveBank) -> None:
    ema_CL = toy_bank.ema_CL[::7].astype(np.float64)
    target_CG = toy_bank.target_losses(FRACTIONS)[::7] * 1.0001  # off the losses themselves
    predictor = KalmanPredictor()
    steps = predictor.predict_curves(ema_CL, target_CG)
    assert np.array_equal(steps, predictor.predict_curves(ema_CL * 8, target_CG * 8))  # no rounding
    by_seven = predictor.predict_curves(ema_CL * 7, target_CG * 7)
    assert np.array_equal(steps, by_seven)


def test_live_equals_curves_and_sees_no_future(toy_bank: CurveBank) -> None:
    predictor = KalmanPredictor()
    assert isinstance(predictor, Predictor)
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    steps_CLGN = predictor.predict_curves(ema_CL, target_CG)
    assert steps_CLGN.shape == (*ema_CL.shape, len(FRACTIONS), 1)
    rng = np.random.default_rng(0)
    for batch in (1, 3, 25, 200):
        row = rng.integers(0, len(ema_CL), batch)
        seen = rng.integers(1, toy_bank.length_points + 1, batch)
        hidden = np.arange(toy_bank.length_points) >= seen[:, None]
        other_future = np.where(hidden, rng.uniform(0.01, 9, hidden.shape), ema_CL[row]).astype(np.float32)
        steps = predictor.predict(other_future, seen, target_CG[row])
        assert steps.dtype == np.uint16
        assert np.array_equal(steps, steps_CLGN[row, seen - 1])


def test_the_hash_tells_settings_apart() -> None:
    assert KalmanPredictor().content_hash == KalmanPredictor(4).content_hash
    assert KalmanPredictor().content_hash != KalmanPredictor(5).content_hash
