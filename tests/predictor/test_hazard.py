"""The nearest-curves predictor: neighbours and futures by hand, live and table, scale, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.hazard import HazardPredictor, weighted_quantiles
from mara_ray.predictor.protocol import Predictor
from mara_ray.progress import silent

FRACTIONS = (0.3, 0.5, 0.7, 0.9, 1.05)
# Halving, falling by a tenth, and standing still.
TINY_CL = np.array([0.5 ** np.arange(8), 0.9 ** np.arange(8), np.ones(8)]).astype(np.float32)


@pytest.fixture(scope="module")
def predictor(toy_bank: CurveBank) -> HazardPredictor:
    return HazardPredictor(toy_bank.ema_CL[toy_bank.rows("id", "train")], num_neighbours=5)


def test_live_equals_table_bit_for_bit(
    predictor: HazardPredictor, toy_bank: CurveBank, tmp_path: Path
) -> None:
    assert isinstance(predictor, Predictor)
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    table = ForecastTable.build(predictor, toy_bank, target_CG, tmp_path / "hazard", silent)
    assert table.steps_CLGN.shape == (60, 60, 5, 8)
    assert len(np.unique(table.steps_CLGN)) > 20
    rng = np.random.default_rng(0)
    for batch in (1, 2, 7, 64, 700):
        row = rng.integers(0, len(ema_CL), batch)
        seen = rng.integers(1, toy_bank.length_points + 1, batch)
        steps = predictor.predict(ema_CL[row], seen, target_CG[row])
        assert steps.dtype == np.uint16
        assert np.array_equal(steps, table.steps_CLGN[row, seen - 1])


def test_the_unseen_future_does_not_matter(predictor: HazardPredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    rng = np.random.default_rng(1)
    seen = rng.integers(1, toy_bank.length_points + 1, len(ema_CL))
    hidden = np.arange(toy_bank.length_points) >= seen[:, None]
    expected = predictor.predict(ema_CL, seen, target_CG)
    for future in (0.0, 50.0, np.nan):
        changed = np.where(hidden, np.float32(future), ema_CL)
        with np.errstate(all="raise", under="ignore"):
            assert np.array_equal(predictor.predict(changed, seen, target_CG), expected)


def test_the_scale_does_not_matter(predictor: HazardPredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[20:30], toy_bank.target_losses(FRACTIONS)[20:30]
    expected = predictor.predict_curves(ema_CL, target_CG)
    assert np.array_equal(
        predictor.predict_curves(ema_CL * np.float32(8), target_CG * np.float32(8)), expected
    )
    rounded = predictor.predict_curves(ema_CL * np.float32(7), target_CG * np.float32(7))  # losses round
    assert (rounded != expected).mean() < 0.01
    other = HazardPredictor(predictor.train_CL * np.float32(8), num_neighbours=5)  # nor that of the bank
    assert np.array_equal(other.predict_curves(ema_CL, target_CG), expected)


def test_answers_between_zero_and_the_cap(predictor: HazardPredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[:20], toy_bank.target_losses(FRACTIONS)[:20]
    steps_CLGN = predictor.predict_curves(ema_CL, target_CG).astype(int)
    cap_L11 = toy_bank.length_points - np.arange(1, toy_bank.length_points + 1)[:, None, None]
    met_CLG = np.minimum.accumulate(ema_CL, 1)[..., None] <= target_CG[:, None]
    assert met_CLG.any() and (steps_CLGN[met_CLG] == 0).all()
    assert (steps_CLGN <= cap_L11).all() and (np.diff(steps_CLGN, axis=3) >= 0).all()
    assert (steps_CLGN[~met_CLG & (cap_L11[..., 0] > 0)] >= 1).all()
    assert (np.diff(steps_CLGN, axis=2) >= 0).all()  # a lower target never comes sooner
    assert (steps_CLGN == cap_L11)[:, :3].all(3)[~met_CLG[:, :3]].all()
    assert not (steps_CLGN == cap_L11)[:, 3:].all(3)[~met_CLG[:, 3:]].all()


def test_neighbours_by_hand() -> None:
    """At 4 points every lag reaches back to the first: all features are asinh(r / ln (1 / 0.9)), r a rate.

    Of the rates ln 2, ln 1 / 0.9 and 0, the middle one is the median; asked for a rate of ln 1 / 0.8.
    """
    asked_PL = np.log(0.8) * np.arange(8)[None]
    row_PK, weight_PK = HazardPredictor(TINY_CL, num_neighbours=2).neighbours(asked_PL, num_seen=4)
    median = np.log(1 / 0.9)
    train_C = np.arcsinh(np.array([np.log(2), median, 0]) / median)
    distance_C = np.abs(np.arcsinh(np.log(1 / 0.8) / median) - train_C)
    assert distance_C.argsort().tolist() == [*row_PK[0].tolist(), 2]
    assert row_PK[0].tolist() == [1, 0]
    square_K = distance_C[[1, 0]] ** 2  # scale and number of features cancel in the weights
    np.testing.assert_allclose(weight_PK[0], np.exp(-square_K / square_K.mean()), rtol=1e-6)


def test_futures_by_hand() -> None:
    """After 4 points of 8: a quarter of the latest loss takes 2 steps of halving; the others are too slow."""
    target_BG = np.float32([[0.25, 0.85, 0.95]]) * TINY_CL[:1, 3:4]
    for curve, expected in ((0, [2, 1, 1]), (1, [4, 2, 1]), (2, [4, 4, 4])):
        nearest = HazardPredictor(TINY_CL[curve : curve + 1])
        steps_BGN = nearest.predict(TINY_CL[:1], np.array([4]), target_BG)
        assert (steps_BGN == np.array(expected)[:, None]).all()
    both = HazardPredictor(TINY_CL[:2], num_neighbours=2).predict(TINY_CL[:1], np.array([4]), target_BG)
    # The distance to itself is 0 and the weight 1; the mean square is half of the other's: e^-2 = 0.135.
    # So the other has 0.119 of the weight, and the levels over 0.881 are its: 15/16 alone.
    assert both[0, 0].tolist() == [2] * 7 + [4]


def test_weighted_quantiles_by_hand() -> None:
    values = np.array([[30, 10, 20]])
    weights = np.array([[1.0, 2.0, 1.0]])
    assert weighted_quantiles(values, weights, 4).tolist() == [[10, 10, 20, 30]]  # levels 1/8, 3/8, 5/8, 7/8
    assert weighted_quantiles(values, weights, 1).tolist() == [[10]]
    assert weighted_quantiles(values, weights * [0, 1, 1], 2).tolist() == [[10, 20]]


def test_curves_that_do_not_move_have_an_answer(predictor: HazardPredictor) -> None:
    flat_CL = np.full((2, 60), 2.0, np.float32)
    target_CG = np.repeat(np.array([[2.0, 1.9, 1e-3]], np.float32), 2, 0)
    for asked in (predictor, HazardPredictor(flat_CL)):
        steps_LGN = asked.predict_curves(flat_CL, target_CG)[0].astype(int)
        assert (steps_LGN[:, 0] == 0).all() and (steps_LGN[:-1, 1:] >= 1).all()
    assert (steps_LGN[:, 2] == 59 - np.arange(60)[:, None]).all()


def test_it_forecasts_better_than_the_cap(predictor: HazardPredictor, toy_bank: CurveBank) -> None:
    rows = toy_bank.rows("id", "validation")
    ema_CL, target_CG = toy_bank.ema_CL[rows], toy_bank.target_losses((0.5, 0.7, 0.9))[rows]
    needed_CG = (np.minimum.accumulate(ema_CL, 1)[:, None] > target_CG[..., None]).sum(2) + 1
    seen = np.full(len(rows), 10)
    truth_CG = needed_CG - 10
    forecast_CG = np.median(predictor.predict(ema_CL, seen, target_CG), axis=2)
    error, capped = (np.abs(answer - truth_CG)[truth_CG > 0].mean() for answer in (forecast_CG, 50))
    assert error < 0.7 * capped


def test_another_length_is_refused(predictor: HazardPredictor) -> None:
    with pytest.raises(ValueError, match="curves of 61 points, not 60"):
        predictor.predict_curves(np.ones((1, 61), np.float32), np.ones((1, 1), np.float32))


def test_the_hash_tells_predictors_apart(predictor: HazardPredictor) -> None:
    hashes = {
        predictor.content_hash,
        HazardPredictor(predictor.train_CL, num_neighbours=6).content_hash,
        HazardPredictor(predictor.train_CL[:-1], num_neighbours=5).content_hash,
    }
    assert len(hashes) == 3
