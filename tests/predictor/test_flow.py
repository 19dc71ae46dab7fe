"""The flow predictor: live and table agree, nothing of the future or the scale gets in, files are checked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.predictor.fitting import FlowTraining, make_predictor
from mara_ray.predictor.flow import FlowPredictor, prefix_features, starting_noise
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.protocol import Predictor
from mara_ray.progress import silent

FRACTIONS = (0.3, 0.5, 0.7, 0.9, 1.05)
CONFIG = PredictorConfig(encoder_width=12, velocity_width=24, epochs=3, batch_curves=4)


@pytest.fixture(scope="module")
def predictor(toy_bank: CurveBank) -> FlowPredictor:
    """Three epochs: not good, but no longer the same for every prefix."""
    training = FlowTraining(CONFIG, toy_bank.ema_CL[toy_bank.rows("id", "train")], 0, torch.device("cpu"))
    for _ in range(3):
        training.run_epoch(rank=0, world_size=1)
    return make_predictor(CONFIG, training.network.state_dict(), seed=0)


def test_live_equals_table_bit_for_bit(predictor: FlowPredictor, toy_bank: CurveBank, tmp_path: Path) -> None:
    assert isinstance(predictor, Predictor)
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    table = ForecastTable.build(predictor, toy_bank, target_CG, tmp_path / "fm", silent)
    assert table.steps_CLGN.shape == (60, 60, 5, 8)
    assert len(np.unique(table.steps_CLGN)) > 20
    rng = np.random.default_rng(0)
    for batch in (1, 2, 7, 64, 300):
        row = rng.integers(0, len(ema_CL), batch)
        seen = rng.integers(1, toy_bank.length_points + 1, batch)
        steps = predictor.predict(ema_CL[row], seen, target_CG[row])
        assert steps.dtype == np.uint16
        assert np.array_equal(steps, table.steps_CLGN[row, seen - 1])


def test_the_unseen_future_does_not_matter(predictor: FlowPredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL, toy_bank.target_losses(FRACTIONS)
    rng = np.random.default_rng(1)
    seen = rng.integers(1, toy_bank.length_points + 1, len(ema_CL))
    hidden = np.arange(toy_bank.length_points) >= seen[:, None]
    expected = predictor.predict(ema_CL, seen, target_CG)
    for future in (0.0, 50.0, np.nan):
        changed = np.where(hidden, np.float32(future), ema_CL)
        with np.errstate(all="raise"):  # not even a logarithm is taken of what is not seen
            assert np.array_equal(predictor.predict(changed, seen, target_CG), expected)
    # nor does it in the pass over whole curves, for prefixes that end before it
    changed = np.concatenate([ema_CL[:, :30], ema_CL[:, 30:] * np.float32(0.1)], axis=1)
    first = predictor.predict_curves(ema_CL[:8], target_CG[:8])
    second = predictor.predict_curves(changed[:8], target_CG[:8])
    assert np.array_equal(first[:, :30], second[:, :30])
    assert not np.array_equal(first[:, 30:], second[:, 30:])


def test_the_scale_does_not_matter(predictor: FlowPredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[:10], toy_bank.target_losses(FRACTIONS)[:10]
    expected = predictor.predict_curves(ema_CL, target_CG)
    for scale in np.float32([0.25, 64.0]):  # powers of two scale floats without rounding
        assert np.array_equal(predictor.predict_curves(ema_CL * scale, target_CG * scale), expected)
    rounded = predictor.predict_curves(ema_CL * np.float32(3.7), target_CG * np.float32(3.7))
    difference = np.abs(rounded.astype(int) - expected.astype(int))
    assert (difference > 0).mean() < 0.01


def test_answers_between_zero_and_the_cap(predictor: FlowPredictor, toy_bank: CurveBank) -> None:
    ema_CL, target_CG = toy_bank.ema_CL[:20], toy_bank.target_losses(FRACTIONS)[:20]
    steps_CLGN = predictor.predict_curves(ema_CL, target_CG).astype(int)
    cap_L = toy_bank.length_points - np.arange(1, toy_bank.length_points + 1)
    met_CLG = np.minimum.accumulate(ema_CL, 1)[..., None] <= target_CG[:, None]
    assert met_CLG.any() and (steps_CLGN[met_CLG] == 0).all()
    waiting_CLG = ~met_CLG[:, :3]
    assert (
        steps_CLGN[:, :3][waiting_CLG]
        == np.broadcast_to(cap_L[:3, None], met_CLG[:, :3].shape)[waiting_CLG, None]
    ).all()
    open_CLG = ~met_CLG & (cap_L[:, None] > 0)
    assert (steps_CLGN[open_CLG] >= 1).all()
    assert (steps_CLGN <= cap_L[:, None, None]).all()
    assert (np.diff(steps_CLGN, axis=3) >= 0).all()


def test_features_are_causal_and_scale_free() -> None:
    losses = np.array([[4.0, 2.0, 1.0, 0.5]])
    features_LD = prefix_features(losses)[0]
    assert features_LD[:, 0].tolist() == pytest.approx(np.log([1, 1 / 2, 1 / 4, 1 / 8]))
    assert features_LD[:, 1].tolist() == [0] * 4
    assert features_LD[:, 2].tolist() == pytest.approx(np.log([1, 1 / 2, 1 / 2, 1 / 2]))
    assert prefix_features(np.array([[4.0, 1.0, 2.0]]))[0, :, 1].tolist() == pytest.approx([0, 0, np.log(2)])
    assert features_LD[:, -1].tolist() == pytest.approx(np.log([4, 3, 2, 1]))


def test_starting_noise_is_centred_and_fixed() -> None:
    noise_NH = starting_noise(8, 32, seed=3)
    assert np.array_equal(noise_NH, starting_noise(8, 32, seed=3))
    assert not np.array_equal(noise_NH, starting_noise(8, 32, seed=4))
    level_N = noise_NH.mean(1) * np.sqrt(32)
    assert level_N.sum() == pytest.approx(0, abs=1e-12) and level_N[-1] == pytest.approx(1.534, abs=1e-3)


def test_saved_and_loaded_are_one(predictor: FlowPredictor, toy_bank: CurveBank, tmp_path: Path) -> None:
    predictor.save(tmp_path)
    loaded = FlowPredictor.load(tmp_path)
    assert loaded.content_hash == predictor.content_hash
    target_CG = toy_bank.target_losses(FRACTIONS)
    assert np.array_equal(
        loaded.predict_curves(toy_bank.ema_CL[:6], target_CG[:6]),
        predictor.predict_curves(toy_bank.ema_CL[:6], target_CG[:6]),
    )


def test_damaged_files_are_told_in_a_line(predictor: FlowPredictor, tmp_path: Path) -> None:
    def told() -> str:
        with pytest.raises(UserError) as error:
            FlowPredictor.load(tmp_path)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "missing" in told()
    predictor.save(tmp_path)
    weights, config = tmp_path / "weights.safetensors", tmp_path / "predictor.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert f"predictor: {weights} is damaged" in told() and "mara predictor train" in told()
    weights.write_bytes(b"\x00" * 64)
    assert "is damaged" in told()
    weights.write_bytes(whole[:-4] + b"\x00\x00\xc0\x7f")  # the last float32 becomes NaN
    assert "not finite" in told()
    weights.unlink()
    assert f"{weights} is missing" in told()
    weights.write_bytes(whole)
    content = json.loads(config.read_text())
    content["shape"]["velocity_width"] = 25
    config.write_text(json.dumps(content))
    assert "is damaged" in told()
    config.write_text("{}")
    assert "is damaged" in told()
