"""What the shipped bank and weights are worth, computed on the spot."""

from __future__ import annotations

from typing import Any

import numpy as np

from mara_ray import pretrained
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank, first_crossing
from mara_ray.predictor.evaluate import CurveForecasts, evaluate_predictors, from_predictor
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.forecast import CurvePredictor, OraclePredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.predictor.rivals import make_rival
from mara_ray.progress import Report

EVERY_POINTS = 10  # one prefix in so many is looked at


def evaluate_shipped_predictors(report: Report) -> dict[str, Any]:
    """Compare the shipped predictors on the shipped bank's test curves; see `evaluate_predictors`."""
    config, bank = load_config("standard", ["predictor.trained=standard"]), CurveBank.read(pretrained.BANK)
    warmup_points = config.predictor.warmup_points
    flow = FlowPredictor.load(pretrained.PREDICTOR)
    predictors: dict[str, CurvePredictor] = {
        "fm": flow,
        "wls": WLSPredictor(warmup_points),
        "oracle": OraclePredictor(),
    }
    for name in config.evaluation.rivals:
        predictors[name] = make_rival(
            name, flow, config.predictor, bank, config.seed, pretrained.RIVALS / name, report
        )
    target_CG = bank.target_losses(config.workload.target_fractions)
    num_seen_P = np.arange(warmup_points, bank.length_points, EVERY_POINTS)
    num_rows = sum(len(bank.rows(set_name, "test")) for set_name in ("id", "rl", "vit"))
    forecasts = {
        name: _counted(from_predictor(predictor, bank, target_CG), name, num_rows, report)
        for name, predictor in predictors.items()
    }
    return evaluate_predictors(forecasts, bank, first_crossing(bank.ema_CL, target_CG), num_seen_P)


def _counted(forecasts: CurveForecasts, name: str, total: int, report: Report) -> CurveForecasts:
    """The same forecasts, reported as they are made."""
    done = 0

    def counted(row: int, num_seen_P: np.ndarray) -> np.ndarray:
        nonlocal done
        done += 1
        report(done, total, name)
        return forecasts(row, num_seen_P)

    return counted
