"""The measures of forecasts on a bank whose numbers are worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mara_ray.curves.bank import CurveBank, first_crossing
from mara_ray.predictor.evaluate import evaluate_predictors, from_predictor, from_table
from mara_ray.predictor.flow import FlowNetwork, FlowPredictor, FlowShape, starting_noise
from mara_ray.predictor.forecast import ForecastTable, OraclePredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import silent

FRACTIONS = (0.3, 0.6, 0.9, 1.05)
SHAPE = FlowShape(4, 1.0, True, 6, 8, 8, 2, 4)


class LatePredictor(OraclePredictor):
    """The truth plus four steps, with two samples two steps to either side; not capped."""

    name = "late"
    num_samples = 2

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        steps_CLGN = super().predict_curves(ema_CL, target_CG)
        return np.concatenate([steps_CLGN + np.uint16(2), steps_CLGN + np.uint16(6)], axis=3)


@pytest.fixture(scope="module")
def result(toy_bank: CurveBank, tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("tables")
    target_CG = toy_bank.target_losses(FRACTIONS)
    tables = {
        predictor.name: ForecastTable.build(
            predictor, toy_bank, target_CG, Path(folder) / predictor.name, silent
        )
        for predictor in (WLSPredictor(), OraclePredictor(), LatePredictor())
    }
    num_seen_P = np.arange(4, toy_bank.length_points)
    return evaluate_predictors(
        {name: from_table(table) for name, table in tables.items()},
        toy_bank,
        first_crossing(toy_bank.ema_CL, target_CG),
        num_seen_P,
    )


def test_the_truth_has_no_error(result: dict) -> None:
    for set_name in ("id", "rl", "vit", "mean"):
        oracle = result["predictors"]["oracle"][set_name]
        assert oracle["capped_mae"] == oracle["crps"] == 0
        assert oracle["coverage_90"] == 1
        assert result["versus_wls"]["oracle"][set_name]["mae_reduction_percent"] == 100


def test_a_known_error(result: dict) -> None:
    """Median 4 late; the truth lies under both samples; CRPS = (2 + 6) / 2 - (4 / 2) / 2."""
    late = result["predictors"]["late"]["id"]
    assert late["capped_mae"] == pytest.approx(4)
    assert late["crps"] == pytest.approx(3)
    assert late["coverage_90"] == 0
    assert 0.3 < late["success_accuracy"] < 1


def test_the_mean_weighs_sets_alike(result: dict) -> None:
    wls = result["predictors"]["wls"]
    assert wls["mean"]["capped_mae"] == pytest.approx(
        np.mean([wls[name]["capped_mae"] for name in ("id", "rl", "vit")])
    )


def test_improvement_over_wls_and_its_interval(result: dict) -> None:
    wls, late = result["predictors"]["wls"]["rl"], result["predictors"]["late"]["rl"]
    versus = result["versus_wls"]["late"]["rl"]
    assert "wls" not in result["versus_wls"]
    assert versus["mae_reduction_percent"] == pytest.approx(
        100 * (1 - late["capped_mae"] / wls["capped_mae"])
    )
    gain = 100 * (late["success_accuracy"] - wls["success_accuracy"])
    assert versus["success_gain_points"] == pytest.approx(gain)
    assert versus["ci"][0] < versus["mae_reduction_percent"] < versus["ci"][1]
    assert versus["success_ci"][0] < gain < versus["success_ci"][1]


def test_success_by_hand() -> None:
    """One case: 8 left of 12 points, done in 3 steps, forecast 5: windows 1..7, wrong for 3 and 4."""
    point_L = np.arange(12)
    ema_CL = np.where(point_L < 6, 2.0, 1.0)[None].astype(np.float32)
    one = {
        name: np.array([value])
        for name, value in {
            "curve_id": "a/0", "configuration": "a", "set": "id", "split": "test", "seed": 0,
            "accepted": True, "status": "ok", "hyperparameters": "{}",
        }.items()
    }  # fmt: skip
    bank = CurveBank(**one, raw_CL=ema_CL, ema_CL=ema_CL)
    target_CG = np.array([[1.5]], np.float32)
    steps_CLGN = np.full((1, 12, 1, 1), 5, np.uint16)
    steps_CLGN[0, 4:] = OraclePredictor().predict_curves(ema_CL, target_CG)[0, 4:]
    table = ForecastTable("fm", steps_CLGN, "", "")
    needed_CG = first_crossing(ema_CL, target_CG)
    assert needed_CG.tolist() == [[7]]
    num_seen_P = np.arange(4, 12)
    forecasts = from_table(table)
    result = evaluate_predictors({"fm": forecasts, "wls": forecasts}, bank, needed_CG, num_seen_P)
    # three cases: n = 4 as above, n = 5 and 6 without a fault
    assert result["predictors"]["fm"]["id"]["success_accuracy"] == pytest.approx((5 / 7 + 1 + 1) / 3)
    assert result["predictors"]["fm"]["id"]["capped_mae"] == pytest.approx((2 + 0 + 0) / 3)


def test_configurations_slow_curves_prefixes_and_reliability(result: dict) -> None:
    late = {
        key: result[key]["late"] for key in ("predictors", "configurations", "slow", "prefix", "reliability")
    }
    assert late["configurations"]["img_mlp"] == late["predictors"]["id"], "one configuration is the whole set"
    assert late["slow"]["id"]["capped_mae"] == pytest.approx(4)
    assert late["prefix"]["id"]["from"] == [4, 8, 16, 32]
    assert late["prefix"]["id"]["capped_mae"] == pytest.approx([4] * 4)
    assert result["early"]["late"]["id"]["capped_mae"] == pytest.approx(4)
    oracle = result["reliability"]["oracle"]["vit"]
    assert oracle["forecast"] == [0, 1] and oracle["happened"] == [0, 1]
    forecast = np.array(late["reliability"]["id"]["forecast"])
    assert len(forecast) == 3 and (forecast == [0, 0.5, 1]).all()


def test_forecasts_on_the_spot_are_those_of_the_table(toy_bank: CurveBank, tmp_path: Path) -> None:
    target_CG = toy_bank.target_losses(FRACTIONS)
    num_seen_P = np.array([4, 9, 30])
    network = FlowNetwork(SHAPE)
    for predictor in (WLSPredictor(), FlowPredictor(SHAPE, network, starting_noise(8, 4, 0))):
        table = ForecastTable.build(predictor, toy_bank, target_CG, tmp_path / predictor.name, silent)
        live = from_predictor(predictor, toy_bank, target_CG)
        for row in (0, 7):
            assert np.array_equal(live(row, num_seen_P), from_table(table)(row, num_seen_P))
