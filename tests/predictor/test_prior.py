"""The prior by hand, and its wrapper: the prior early, the predictor later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mara_ray.curves.bank import CurveBank, first_crossing
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.hazard import HazardPredictor
from mara_ray.predictor.prior import WithPrior, prior_steps
from mara_ray.predictor.protocol import Predictor
from mara_ray.progress import silent

FRACTIONS = (0.3, 0.5, 0.7, 0.9, 1.05)
# Half of the first loss needs 2, 4, 5 points and never; the scales differ.
HAND_CL = np.array(
    [[8, 4, 9, 9, 9, 9], [2, 2, 1.5, 1, 1, 1], [6, 5, 5, 5, 3, 2], [1, 0.9, 0.8, 0.7, 0.7, 0.7]], np.float32
)


@pytest.fixture(scope="module")
def predictor(toy_bank: CurveBank) -> WithPrior:
    train_CL = toy_bank.ema_CL[toy_bank.rows("id", "train")]
    return WithPrior(HazardPredictor(train_CL), train_CL)


def test_prior_by_hand() -> None:
    """L = 6: after 1 point the steps to a half are 1, 3, 4 and the cap 5, two of eight quantiles each."""
    steps_XN = prior_steps(HAND_CL, np.full(3, 0.5), np.array([1, 2, 3]), 8)
    assert steps_XN.dtype == np.uint16
    assert steps_XN[0].tolist() == [1, 1, 3, 3, 4, 4, 5, 5]
    # After 2 points the first curve has met it: 2, 3 and the cap 4, at levels 1/16, 3/16, .. of three.
    assert steps_XN[1].tolist() == [2, 2, 2, 3, 3, 4, 4, 4]
    assert steps_XN[2].tolist() == [1, 1, 1, 2, 2, 3, 3, 3]


def test_prior_at_the_ends() -> None:
    steps_XN = prior_steps(HAND_CL, np.array([0.95, 1e-6, 0.5]), np.array([4, 1, 6]), 4)
    assert steps_XN[0].tolist() == [1] * 4  # every training curve had met it by then
    assert steps_XN[1].tolist() == [5] * 4  # none ever does
    assert steps_XN[2].tolist() == [0] * 4  # nothing is left
    assert prior_steps(HAND_CL, np.array([0.5]), np.array([1]), 1).tolist() == [[4]]


def test_prior_agrees_with_the_crossings(toy_bank: CurveBank) -> None:
    train_CL = toy_bank.ema_CL[:12]
    ratio_X = np.array([0.9, 0.6, 0.3, 0.1])
    target_CX = (train_CL[:, :1] * ratio_X).astype(np.float32)
    needed_CX = np.minimum(first_crossing(train_CL, target_CX), 60)
    steps_XN = prior_steps(train_CL, ratio_X, np.ones(4, np.int64), 12)  # as many quantiles as curves
    assert np.array_equal(steps_XN, np.sort(needed_CX - 1, axis=0).T)


def test_the_prior_answers_early_and_the_predictor_later(predictor: WithPrior, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[20:40], toy_bank.target_losses(FRACTIONS)[20:40]
    train_CL = toy_bank.ema_CL[toy_bank.rows("id", "train")]
    steps_CLGN = predictor.predict_curves(ema_CL, target_CG)
    alone_CLGN = HazardPredictor(train_CL).predict_curves(ema_CL, target_CG)
    assert np.array_equal(steps_CLGN[:, 3:], alone_CLGN[:, 3:])
    ratio_G = target_CG[0] / ema_CL[0, 0].astype(np.float64)
    assert np.array_equal(steps_CLGN[0, 0], prior_steps(train_CL, ratio_G, np.ones(5, np.int64), 8))
    assert len(np.unique(steps_CLGN[:, 0])) > 10 and len(np.unique(alone_CLGN[:, 0])) == 1


def test_live_equals_table_bit_for_bit(predictor: WithPrior, toy_bank: CurveBank, tmp_path: Path) -> None:
    assert isinstance(predictor, Predictor)
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    table = ForecastTable.build(predictor, toy_bank, target_CG, tmp_path / "prior", silent)
    assert table.name == "hazard_prior" and table.steps_CLGN.shape == (60, 60, 5, 8)
    rng = np.random.default_rng(0)
    for batch in (1, 2, 7, 64, 300):
        row = rng.integers(0, len(ema_CL), batch)
        seen = rng.integers(1, 9, batch)
        hidden = np.arange(toy_bank.length_points) >= seen[:, None]
        for future in (0.0, 50.0, np.nan):  # nor does it see what is to come
            changed = np.where(hidden, np.float32(future), ema_CL[row])
            steps = predictor.predict(changed, seen, target_CG[row])
            assert steps.dtype == np.uint16
            assert np.array_equal(steps, table.steps_CLGN[row, seen - 1])


def test_the_scale_does_not_matter(predictor: WithPrior, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[:10], toy_bank.target_losses(FRACTIONS)[:10]
    expected = predictor.predict_curves(ema_CL, target_CG)
    assert np.array_equal(
        predictor.predict_curves(ema_CL * np.float32(8), target_CG * np.float32(8)), expected
    )
    rounded = predictor.predict_curves(ema_CL * np.float32(7), target_CG * np.float32(7))  # losses round
    assert (rounded != expected).mean() < 0.01


def test_met_targets_need_nothing(predictor: WithPrior) -> None:
    losses = np.ones((1, 60), np.float32)
    losses[0, 1] = 0.4
    steps_LG = predictor.predict_curves(losses, np.array([[1.0, 0.5, 0.4]], np.float32))[0, :3].max(2)
    assert (steps_LG[:, 0] == 0).all()
    assert (steps_LG[0, 1:] > 0).all() and (steps_LG[1:, 1:] == 0).all()


def test_a_constant_curve() -> None:
    flat_CL = np.full((2, 12), 3.0, np.float32)
    wrapped = WithPrior(HazardPredictor(flat_CL), flat_CL)
    steps_LGN = wrapped.predict_curves(flat_CL[:1], np.array([[2.0]], np.float32))[0]
    assert steps_LGN[:, :, 0].tolist() == steps_LGN[:, :, -1].tolist() == [[n] for n in range(11, -1, -1)]


def test_the_hash_tells_what_it_was_made_of(toy_bank: CurveBank) -> None:
    train_CL = toy_bank.ema_CL[:12]
    wrappers = [
        WithPrior(HazardPredictor(train_CL), train_CL),
        WithPrior(HazardPredictor(train_CL), train_CL[:-1]),
        WithPrior(HazardPredictor(train_CL, 5), train_CL),
    ]
    assert len({wrapper.content_hash for wrapper in wrappers}) == 3
    assert WithPrior(HazardPredictor(train_CL), train_CL.copy()).content_hash == wrappers[0].content_hash


def test_another_length_is_refused() -> None:
    wrapped = WithPrior(HazardPredictor(np.ones((2, 60), np.float32)), np.ones((2, 60), np.float32))
    with pytest.raises(ValueError, match="curves of 61 points, not 60"):
        wrapped.predict_curves(np.ones((1, 61), np.float32), np.ones((1, 1), np.float32))
