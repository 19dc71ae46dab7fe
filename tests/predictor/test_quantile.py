"""The quantile predictor: live and table agree, nothing of the future or the scale gets in, it learns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.predictor.fitting import validation_error
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.protocol import Predictor
from mara_ray.predictor.quantile import QuantilePredictor, draw_cases, fit_quantiles
from mara_ray.progress import silent

FRACTIONS = (0.3, 0.5, 0.7, 0.9, 1.05)
CONFIG = PredictorConfig(encoder_width=12, velocity_width=24, epochs=25, batch_curves=3)


class Constant:
    """The remaining cap times a share, whatever the prefix."""

    def __init__(self, share: float, predictor: QuantilePredictor) -> None:
        self.share, self.warmup_points = share, predictor.warmup_points

    def predict_prefixes(self, ema_CL, curve_B, num_seen_B, target_BG):  # type: ignore[no-untyped-def]
        cap_B = self.share * (ema_CL.shape[1] - num_seen_B)
        return np.broadcast_to(cap_B[:, None, None], (*target_BG.shape, 1))


def fitted(toy_bank: CurveBank, seed: int = 0, epochs: int = 25) -> QuantilePredictor:
    curves = [toy_bank.ema_CL[toy_bank.rows("id", split)] for split in ("train", "validation")]
    return fit_quantiles(CONFIG.model_copy(update={"epochs": epochs}), curves[0], curves[1], seed, silent)


@pytest.fixture(scope="module")
def predictor(toy_bank: CurveBank) -> QuantilePredictor:
    return fitted(toy_bank)


def test_live_equals_table_bit_for_bit(
    predictor: QuantilePredictor, toy_bank: CurveBank, tmp_path: Path
) -> None:
    assert isinstance(predictor, Predictor)
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    table = ForecastTable.build(predictor, toy_bank, target_CG, tmp_path / "quantile", silent)
    assert table.steps_CLGN.shape == (60, 60, 5, 8)
    assert len(np.unique(table.steps_CLGN)) > 20
    rng = np.random.default_rng(0)
    for batch in (1, 2, 7, 64, 300):
        row = rng.integers(0, len(ema_CL), batch)
        seen = rng.integers(1, toy_bank.length_points + 1, batch)
        steps = predictor.predict(ema_CL[row], seen, target_CG[row])
        assert steps.dtype == np.uint16
        assert np.array_equal(steps, table.steps_CLGN[row, seen - 1])


def test_the_unseen_future_does_not_matter(predictor: QuantilePredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    rng = np.random.default_rng(1)
    seen = rng.integers(1, toy_bank.length_points + 1, len(ema_CL))
    hidden = np.arange(toy_bank.length_points) >= seen[:, None]
    expected = predictor.predict(ema_CL, seen, target_CG)
    for future in (0.0, 50.0, np.nan):
        changed = np.where(hidden, np.float32(future), ema_CL)
        with np.errstate(all="raise", under="ignore"):
            assert np.array_equal(predictor.predict(changed, seen, target_CG), expected)


def test_the_scale_does_not_matter(predictor: QuantilePredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[:10], toy_bank.target_losses(FRACTIONS)[:10]
    expected = predictor.predict_curves(ema_CL, target_CG)
    assert np.array_equal(
        predictor.predict_curves(ema_CL * np.float32(8), target_CG * np.float32(8)), expected
    )
    rounded = predictor.predict_curves(ema_CL * np.float32(7), target_CG * np.float32(7))  # losses round
    difference = np.abs(rounded.astype(int) - expected.astype(int))
    assert (difference > 0).mean() < 0.01 and np.median(difference) == 0


def test_answers_between_zero_and_the_cap(predictor: QuantilePredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[:20], toy_bank.target_losses(FRACTIONS)[:20]
    steps_CLGN = predictor.predict_curves(ema_CL, target_CG).astype(int)
    cap_L11 = toy_bank.length_points - np.arange(1, toy_bank.length_points + 1)[:, None, None]
    met_CLG = np.minimum.accumulate(ema_CL, 1)[..., None] <= target_CG[:, None]
    assert met_CLG.any() and (steps_CLGN[met_CLG] == 0).all()
    assert (steps_CLGN <= cap_L11).all() and (np.diff(steps_CLGN, axis=3) >= 0).all()
    open_CLG = ~met_CLG & (cap_L11[..., 0] > 0)
    assert (steps_CLGN[open_CLG] >= 1).all()
    waiting = (steps_CLGN == cap_L11)[:, :3].all(3)
    assert waiting[~met_CLG[:, :3]].all()
    assert not (steps_CLGN == cap_L11)[:, 3:].all(3)[~met_CLG[:, 3:]].all()


def test_a_curve_that_does_not_move_has_an_answer(predictor: QuantilePredictor) -> None:
    flat_CL = np.full((1, 60), 2.0, np.float32)
    target_CG = np.array([[2.0, 2.0 - 1e-6, 1.0, 1e-3]], np.float32)
    steps_LGN = predictor.predict_curves(flat_CL, target_CG)[0].astype(int)
    assert (steps_LGN[:, 0] == 0).all()
    assert (steps_LGN[:-1, 1:] >= 1).all() and (steps_LGN[-1] == 0).all()


def test_cases_are_the_truth() -> None:
    """A loss of e^-n: a target at the fraction f of the log-drop of 10 is met at point 10 f, or never."""
    losses = np.exp(-np.arange(11.0))[None].astype(np.float32)
    last, question_XGQ, share_XG, weight_X = draw_cases(losses, CONFIG, np.random.default_rng(0))
    assert last.min() == 3 and last.max() == 9
    needed_XG = np.ceil(-question_XGQ[..., 1].numpy().astype(np.float64))  # log target / first, counted down
    left_XG = needed_XG - last.numpy().ravel()[:, None]
    assert (left_XG > 0).all()
    cap_X1 = 10 - last.numpy().ravel()[:, None]
    expected = np.minimum(left_XG / cap_X1, 1)
    np.testing.assert_allclose(share_XG.numpy(), expected, rtol=1e-6)
    assert (left_XG > cap_X1).any() and 0.05 < weight_X.mean() < 0.95


def test_it_learns(predictor: QuantilePredictor, toy_bank: CurveBank) -> None:
    """Better than any constant share of the cap on curves it was not trained on."""
    for split in ("validation", "test"):
        ema_CL = toy_bank.ema_CL[toy_bank.rows("id", split)]
        error = validation_error(predictor, ema_CL, CONFIG.target_fractions)  # type: ignore[arg-type]
        shares = [Constant(share, predictor) for share in np.linspace(0, 1, 21)]
        fractions = CONFIG.target_fractions
        constants = [validation_error(constant, ema_CL, fractions) for constant in shares]  # type: ignore[arg-type]
        assert error < 0.8 * min(constants)


def test_the_seed_decides(toy_bank: CurveBank) -> None:
    hashes = [fitted(toy_bank, seed, epochs=2).content_hash for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_best_epoch_is_kept(toy_bank: CurveBank, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter((5.0, 3.0, 4.0))
    seen: list[str] = []

    def scripted(candidate: QuantilePredictor, *_: object) -> float:
        seen.append(candidate.content_hash)
        return next(scores)

    monkeypatch.setattr("mara_ray.predictor.quantile.validation_error", scripted)
    assert fitted(toy_bank, epochs=3).content_hash == seen[1]
    assert len(set(seen)) == 3


def test_saved_and_loaded_are_one(predictor: QuantilePredictor, toy_bank: CurveBank, tmp_path: Path) -> None:
    predictor.save(tmp_path)
    loaded = QuantilePredictor.load(tmp_path)
    assert loaded.content_hash == predictor.content_hash
    target_CG = toy_bank.target_losses(FRACTIONS)
    assert np.array_equal(
        loaded.predict_curves(toy_bank.ema_CL[:6], target_CG[:6]),
        predictor.predict_curves(toy_bank.ema_CL[:6], target_CG[:6]),
    )


def test_damaged_files_are_told_in_a_line(predictor: QuantilePredictor, tmp_path: Path) -> None:
    def told() -> str:
        with pytest.raises(UserError) as error:
            QuantilePredictor.load(tmp_path)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "missing" in told()
    predictor.save(tmp_path)
    weights, config = tmp_path / "weights.safetensors", tmp_path / "predictor.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert f"predictor: {weights} is damaged" in told() and "mara predictor train" in told()
    weights.write_bytes(whole[:-4] + b"\x00\x00\xc0\x7f")  # the last float32 becomes NaN
    assert "not finite" in told()
    weights.unlink()
    assert f"{weights} is missing" in told()
    weights.write_bytes(whole)
    content = json.loads(config.read_text())
    content["shape"]["hidden_width"] = 25
    config.write_text(json.dumps(content))
    assert "is damaged" in told()
    config.write_text("{}")
    assert "is damaged" in told()
