"""The rivals of flow matching, by name: is it needed?"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from mara_ray import pretrained
from mara_ray.artifacts import read_json
from mara_ray.config import PredictorConfig, Rival
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.predictor.asymptote import PowerLawPredictor
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.forecast import CurvePredictor
from mara_ray.predictor.hazard import HazardPredictor
from mara_ray.predictor.kalman import KalmanPredictor
from mara_ray.predictor.prior import WithPrior
from mara_ray.predictor.quantile import QuantilePredictor, fit_quantiles
from mara_ray.predictor.weights import CONFIG_FILE, training_identity
from mara_ray.progress import Report


def make_rival(
    name: str,
    flow: FlowPredictor,
    config: PredictorConfig,
    bank: CurveBank,
    seed: int,
    directory: Path,
    progress: Report,
) -> CurvePredictor:
    """Build a rival; what must be trained is kept in `directory` and trained once.

    Args:
        name: "power" (power law with asymptote), "laira" (dynamic Kalman filter), "quantile" (the same
            encoder, trained on the remaining steps directly), "hazard" (the nearest training curves) or
            "fm_prior" (flow matching, with the training curves' prior before its warm-up is over).
        flow: the trained flow-matching predictor.
        config: sizes and training of the quantile regressor, and the warm-up of all.
        bank: its training and validation curves are learned from.
        seed: the run's seed.
        directory: where trained weights lie, or will; beside the flow that ships, those that ship are taken.
        progress: is told of epochs.

    Raises:
        UserError: there is no such rival.
    """
    train_CL = bank.ema_CL[bank.rows("id", "train")]
    match name:
        case "power":
            return PowerLawPredictor(config.warmup_points)
        case "laira":
            return KalmanPredictor(config.warmup_points)
        case "hazard":
            return HazardPredictor(train_CL, config.warmup_points)
        case "fm_prior":
            return WithPrior(flow, train_CL)
        case "quantile":
            if str(config.trained) == "standard":
                return QuantilePredictor.load(pretrained.RIVALS / name)
            identity, path = training_identity(config, bank, seed), directory / CONFIG_FILE
            if path.is_file() and read_json(path).get("made_from") == identity:
                return QuantilePredictor.load(directory)
            validation_CL = bank.ema_CL[bank.rows("id", "validation")]
            predictor = fit_quantiles(config, train_CL, validation_CL, seed, progress)
            predictor.save(directory, made_from=identity)
            return predictor
        case _:
            known = ", ".join(get_args(Rival))
            raise UserError(f"evaluation.rivals: {name!r} is unknown; use some of {known}")
