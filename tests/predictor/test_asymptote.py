"""The asymptotic power law against laws whose crossing is known, and its fit against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit

from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.asymptote import (
    HIGHEST_EXPONENT,
    LOWEST_EXPONENT,
    PowerLawPredictor,
    fit_with_asymptote,
)
from mara_ray.predictor.protocol import Predictor

FRACTIONS = (0.3, 0.6, 0.9, 1.05)


def law(asymptote: float, scale: float, exponent: float, num_points: int = 300) -> np.ndarray:
    return (asymptote + scale * np.arange(1, num_points + 1.0) ** -exponent)[None]


def test_two_points_by_hand() -> None:
    """Losses 1 and 0.5: a law through both, of the many there are (a = 0, b = 1, c = 1 is one)."""
    asymptote_B, scale_B, exponent_B = fit_with_asymptote(
        np.array([[1.0, 0.5]]), np.array([0]), np.array([2])
    )
    assert asymptote_B[0] + scale_B[0] == pytest.approx(1.0)
    assert asymptote_B[0] + scale_B[0] * 2 ** -exponent_B[0] == pytest.approx(0.5)


@pytest.mark.parametrize("truth", [(0.5, 2.0, 0.43), (0.1, 3.0, 0.9), (1.0, 1.0, 0.2), (0.02, 0.7, 1.7)])
def test_an_exact_law_is_recovered_with_its_asymptote(truth: tuple[float, float, float]) -> None:
    losses_1L = law(*truth)
    for num_seen in (20, 60, 300):
        fitted = fit_with_asymptote(losses_1L, np.array([0]), np.array([num_seen]))
        assert [float(value_B[0]) for value_B in fitted] == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize("truth", [(0.5, 2.0, 0.43), (0.1, 3.0, 0.9), (1.0, 1.0, 0.2)])
def test_its_crossing_is_right_to_a_step(truth: tuple[float, float, float]) -> None:
    """Targets midway between two steps: the loss is over them at 99 and 249, under them at 100 and 250."""
    target_1G = law(*truth)[:, [98, 248]] / 2 + law(*truth)[:, [99, 249]] / 2
    for num_seen in (20, 40, 60):
        steps_G = PowerLawPredictor().predict(law(*truth), np.array([num_seen]), target_1G)[0, :, 0]
        assert np.abs(steps_G.astype(int) - [100 - num_seen, 250 - num_seen]).max() <= 1


def test_the_fit_is_as_good_as_scipys(toy_bank: CurveBank) -> None:
    """Noisy prefixes: the squared error is that of the best of several bounded nonlinear fits."""
    for row, num_seen in ((0, 60), (3, 12), (11, 25), (24, 40), (47, 60), (55, 8)):
        check_against_scipy(toy_bank.ema_CL[row, :num_seen].astype(np.float64))


def test_the_fit_is_as_good_as_scipys_at_every_bound() -> None:
    """A dip holds a under where the curve stays; a line in ln s, a cliff and a rise press on the others."""
    service_L = np.arange(1.0, 31)
    dip_L = 0.5 + 2 / service_L
    dip_L[20] = 0.3
    assert check_against_scipy(dip_L)[0] == pytest.approx(0.3)
    assert check_against_scipy(3 - np.log(service_L) / 2)[0] == pytest.approx(0.0, abs=1e-9)
    assert check_against_scipy(0.5 + 2 * service_L**-5)[2] == pytest.approx(HIGHEST_EXPONENT)
    assert check_against_scipy(1 + service_L / 10)[0] == pytest.approx(1.1)


def check_against_scipy(losses_L: np.ndarray) -> tuple[float, float, float]:
    """The fit of all the points, after a look at its bounds and its squared error."""
    service_L, lowest = np.arange(1.0, len(losses_L) + 1), losses_L.min()
    bounds = ([0, 0, LOWEST_EXPONENT], [lowest, np.inf, HIGHEST_EXPONENT])
    others = [
        curve_fit(law_at, service_L, losses_L, (lowest / 2, 0.5, start), bounds=bounds, maxfev=4000)[0]
        for start in (0.05, 0.5, 2.0)
    ]
    least = min(np.square(law_at(service_L, *other) - losses_L).sum() for other in others)
    fitted = fit_with_asymptote(losses_L[None], np.array([0]), np.array([len(losses_L)]))
    asymptote, scale, exponent = (float(value_B[0]) for value_B in fitted)
    assert 0 <= asymptote <= lowest * (1 + 1e-9)
    assert scale >= 0
    assert LOWEST_EXPONENT * (1 - 1e-9) <= exponent <= HIGHEST_EXPONENT * (1 + 1e-9)
    assert np.square(law_at(service_L, asymptote, scale, exponent) - losses_L).sum() <= least * 1.03
    return asymptote, scale, exponent


def law_at(service_L: np.ndarray, asymptote: float, scale: float, exponent: float) -> np.ndarray:
    return asymptote + scale * service_L**-exponent


def test_cap_without_enough_points_or_under_the_asymptote() -> None:
    predictor, losses_1L = PowerLawPredictor(), law(0.5, 2.0, 0.43)
    reachable, unreachable = losses_1L[:, [99]], np.array([[0.45]])
    assert predictor.predict(losses_1L, np.array([3]), reachable)[0, 0, 0] == 297
    assert predictor.predict(losses_1L, np.array([4]), reachable)[0, 0, 0] < 296
    assert predictor.predict(losses_1L, np.array([40]), unreachable)[0, 0, 0] == 260
    assert PowerLawPredictor(41).predict(losses_1L, np.array([40]), reachable)[0, 0, 0] == 260
    assert (
        predictor.predict(law(0.5, 2.0, 0.43, 50), np.array([40]), reachable)[0, 0, 0] == 10
    )  # beyond the cap


@pytest.mark.parametrize(
    "losses_L", [np.full(200, 0.7), np.linspace(1.0, 3.0, 200)], ids=["constant", "rising"]
)
def test_cap_for_a_curve_that_does_not_fall(losses_L: np.ndarray) -> None:
    target_LG = np.full((200, 1), losses_L[0] * 0.99)
    steps_L = PowerLawPredictor().predict(np.tile(losses_L, (200, 1)), np.arange(1, 201), target_LG)[:, 0, 0]
    assert np.array_equal(steps_L, 200 - np.arange(1, 201))


def test_met_targets_need_nothing_even_after_the_loss_rose_again() -> None:
    losses = np.array([[1.0, 0.4, 0.9, 0.9, 0.9, 0.9]], np.float32)
    steps = PowerLawPredictor().predict(losses, np.array([5]), np.array([[0.5, 0.4, 0.3]], np.float32))
    assert steps[0, :, 0].tolist() == [0, 0, 1]


def test_an_unmet_target_needs_a_step_where_the_fit_is_under_it_already() -> None:
    losses_1L = law(0.0, 2.0, 0.5, 40)
    losses_1L[0, 15:20] = losses_1L[0, 14]  # the loss stalls, the fit does not
    assert PowerLawPredictor().predict(losses_1L, np.array([20]), losses_1L[:, [14]] * 0.999)[0, 0, 0] == 1


def test_the_scale_of_the_loss_does_not_matter(toy_bank: CurveBank) -> None:
    ema_CL = toy_bank.ema_CL[::7].astype(np.float64)
    target_CG = toy_bank.target_losses(FRACTIONS)[::7] * 1.0001  # off the losses themselves
    predictor = PowerLawPredictor()
    steps = predictor.predict_curves(ema_CL, target_CG)
    assert np.array_equal(steps, predictor.predict_curves(ema_CL * 8, target_CG * 8))  # no rounding
    by_seven = predictor.predict_curves(ema_CL * 7, target_CG * 7)
    assert np.abs(steps.astype(int) - by_seven).max() <= 1
    assert (steps == by_seven).mean() > 0.99


def test_live_equals_curves_and_sees_no_future(toy_bank: CurveBank) -> None:
    predictor = PowerLawPredictor()
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
    assert PowerLawPredictor().content_hash == PowerLawPredictor(4).content_hash
    assert PowerLawPredictor().content_hash != PowerLawPredictor(5).content_hash
