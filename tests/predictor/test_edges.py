"""What every predictor answers at the edges: short, flat and finished curves, and losses that are none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.predictor.asymptote import PowerLawPredictor
from mara_ray.predictor.fitting import FlowTraining, make_predictor
from mara_ray.predictor.hazard import HazardPredictor
from mara_ray.predictor.kalman import KalmanPredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.predictor.prior import WithPrior
from mara_ray.predictor.protocol import Predictor
from mara_ray.predictor.quantile import fit_quantiles
from mara_ray.progress import silent

LENGTH = 60
CONFIG = PredictorConfig(encoder_width=6, velocity_width=8, horizon_bins=8, epochs=1)
NAMES = ("fm", "wls", "power", "laira", "hazard", "quantile", "fm_prior")


@pytest.fixture(scope="module")
def predictors(toy_bank: CurveBank) -> dict[str, Predictor]:
    train_CL = toy_bank.ema_CL[toy_bank.rows("id", "train")]
    validation_CL = toy_bank.ema_CL[toy_bank.rows("id", "validation")]
    training = FlowTraining(CONFIG, train_CL, 0, torch.device("cpu"))
    training.run_epoch(0, 1)
    flow = make_predictor(CONFIG, training.average, 0)
    return {
        "fm": flow,
        "wls": WLSPredictor(),
        "power": PowerLawPredictor(),
        "laira": KalmanPredictor(),
        "hazard": HazardPredictor(train_CL),
        "quantile": fit_quantiles(CONFIG, train_CL, validation_CL, 0, silent),
        "fm_prior": WithPrior(flow, train_CL),
    }


def ask(predictor: Predictor, losses: list[float], target: float, num_seen: int | None = None) -> np.ndarray:
    """Forecast of a curve of which `losses` were seen; what is unseen is not a number."""
    ema_1L = np.full((1, LENGTH), np.nan, np.float32)
    ema_1L[0, : len(losses)] = losses
    seen_1 = np.array([len(losses) if num_seen is None else num_seen])
    return predictor.predict(ema_1L, seen_1, np.array([[target]], np.float32))[0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_a_target_over_the_loss_is_met(predictors: dict[str, Predictor], name: str) -> None:
    for losses in ([2.0], [2.0, 1.0, 3.0], [2.0 - 0.02 * n for n in range(50)]):
        assert (ask(predictors[name], losses, 1.9 if len(losses) > 1 else 2.0) == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_at_the_end(predictors: dict[str, Predictor], name: str) -> None:
    assert (ask(predictors[name], [2.0 - 0.02 * n for n in range(LENGTH)], 0.1) == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_curve_has_an_answer(predictors: dict[str, Predictor], name: str) -> None:
    for seen in (1, 3, 4, 30, LENGTH - 1):
        steps_N = ask(predictors[name], [0.7] * seen, 0.35)
        assert (steps_N >= 1).all() and (steps_N <= LENGTH - seen).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fm_prior"])
def test_under_four_points_the_answer_is_the_cap(predictors: dict[str, Predictor], name: str) -> None:
    for seen in (1, 2, 3):
        assert (ask(predictors[name], [3.0, 2.5, 2.2][:seen], 1.0) == LENGTH - seen).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_loss_is_refused_in_a_line(predictors: dict[str, Predictor], name: str) -> None:
    for bad in (np.nan, np.inf, 0.0, -1.0):
        with pytest.raises(UserError, match=r"^losses: .* \(row 0, entry 2\) is no positive number"):
            ask(predictors[name], [3.0, 2.0, bad, 1.0], 0.5)
        with pytest.raises(UserError, match=r"^targets: "):
            ask(predictors[name], [3.0, 2.0, 1.5, 1.0], bad)
    for seen in (0, LENGTH + 1):
        with pytest.raises(UserError, match=rf"^points seen: {seen} is not in 1\.\.60"):
            ask(predictors[name], [3.0], 1.0, num_seen=seen)
