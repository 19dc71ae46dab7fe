"""The forecast table: the same numbers as the predictor, on disk, with clear errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mara_ray.curves.bank import NEVER, CurveBank, first_crossing
from mara_ray.errors import UserError
from mara_ray.predictor.forecast import ForecastTable, OraclePredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import silent

FRACTIONS = (0.3, 0.6, 0.9, 1.05)


@pytest.fixture
def table(toy_bank: CurveBank, tmp_path: Path) -> ForecastTable:
    target_CG = toy_bank.target_losses(FRACTIONS)
    return ForecastTable.build(WLSPredictor(), toy_bank, target_CG, tmp_path / "wls", silent)


def test_lookup_equals_the_live_call(toy_bank: CurveBank, table: ForecastTable) -> None:
    target_CG = toy_bank.target_losses(FRACTIONS)
    rng = np.random.default_rng(1)
    curve = rng.integers(0, len(toy_bank), (5, 3))
    seen = rng.integers(1, toy_bank.length_points + 1, (5, 3))
    level = rng.integers(0, len(FRACTIONS), (5, 3))
    found = table.lookup(curve, seen, level)
    assert found.shape == (5, 3, 1) and found.dtype == np.float32
    live_BGN = WLSPredictor().predict(toy_bank.ema_CL[curve.ravel()], seen.ravel(), target_CG[curve.ravel()])
    assert np.array_equal(found.ravel(), live_BGN[np.arange(15), level.ravel(), 0])


def test_facts_survive_the_disk(toy_bank: CurveBank, table: ForecastTable, tmp_path: Path) -> None:
    again = ForecastTable.load(tmp_path / "wls")
    assert (again.name, again.num_samples, again.bank_hash) == ("wls", 1, toy_bank.content_hash)
    assert again.predictor_hash == WLSPredictor().content_hash != WLSPredictor(8).content_hash
    assert np.array_equal(again.steps_CLGN, table.steps_CLGN)


def test_progress_ends_at_all_curves(toy_bank: CurveBank, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    ForecastTable.build(
        OraclePredictor(),
        toy_bank,
        toy_bank.target_losses(FRACTIONS),
        tmp_path / "oracle",
        lambda done, total, text: seen.append((done, total)),
    )
    assert seen[-1] == (60, 60) and seen == sorted(seen)


def test_oracle_knows_the_first_crossing(toy_bank: CurveBank) -> None:
    target_CG = toy_bank.target_losses(FRACTIONS)
    needed_CG = first_crossing(toy_bank.ema_CL, target_CG)
    steps_CLG = OraclePredictor().predict_curves(toy_bank.ema_CL, target_CG)[..., 0]
    curve, level = 7, 1
    needed = int(needed_CG[curve, level])
    assert 2 < needed < NEVER
    assert steps_CLG[curve, [0, needed - 2, needed - 1, 59], level].tolist() == [needed - 1, 1, 0, 0]
    assert steps_CLG[curve, [0, 30, 59], 3].tolist() == [59, 29, 0]  # never: the remaining cap


def test_a_damaged_table_is_told_in_a_line(table: ForecastTable, tmp_path: Path) -> None:
    path = tmp_path / "wls" / "steps.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(UserError, match=r"^forecast table: \S+/wls is damaged \(.*\); make it again") as told:
        ForecastTable.load(tmp_path / "wls")
    assert "\n" not in str(told.value)
    np.save(path, np.zeros((2, 2), np.uint16))
    with pytest.raises(UserError, match=r"does not fit its table\.json"):
        ForecastTable.load(tmp_path / "wls")
    path.unlink()
    with pytest.raises(UserError, match="is damaged"):
        ForecastTable.load(tmp_path / "wls")


def test_a_failed_build_leaves_nothing(toy_bank: CurveBank, tmp_path: Path) -> None:
    class Broken(WLSPredictor):
        def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        target_CG = toy_bank.target_losses(FRACTIONS)
        ForecastTable.build(Broken(), toy_bank, target_CG, tmp_path / "wls", silent)
    assert list(tmp_path.iterdir()) == []
