"""Which parts of the predictor matter: one change at a time, a Tune grid judged on validation curves."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray
import torch
import yaml
from pydantic import Field, ValidationError
from ray import tune
from ray.tune import Tuner

from mara_ray.artifacts import written_whole
from mara_ray.config import Positive, PredictorConfig, Section, load_config
from mara_ray.curves.bank import CurveBank, first_crossing, located_bank
from mara_ray.errors import MachineError, UserError
from mara_ray.experiments.cluster import connect
from mara_ray.predictor.fitting import FlowTraining, calibrated, make_predictor, validation_error
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.scoring import MEASURES, score_curve

EVERY_POINTS = 5  # one prefix in so many is scored
SHOWN = ("capped_mae", "success_accuracy", "crps", "coverage_90")


class Ablation(Section):
    """One grid: a YAML file in `tune_configs`."""

    name: str = Field(description="of the results")
    preset: str = Field(description="where the settings come from that are not varied")
    epochs: Positive = Field(description="of every training")
    bank: Path = Field(Path("standard"), description="curves, as in curves.bank")
    sampler: dict[str, list[int]] = Field(description="values of settings that need no training")
    training: dict[str, list[float]] = Field(description="values of settings that do")
    train_curves: list[Positive] = Field(description="sizes of the training bank; all is tried anyway")


def read_ablation(path: Path) -> Ablation:
    """Read and check a grid.

    Raises:
        UserError: the file is missing, no YAML, or not such a grid.
    """
    if not path.is_file():
        raise UserError(f"sweep: {path} is missing; there are some in tune_configs/")
    try:
        return Ablation.model_validate(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as error:
        raise UserError(f"sweep: {path} is not YAML ({str(error).splitlines()[0]}); mend it") from error
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise UserError(f"sweep: {path}: {place}: {problem['msg'].lower()}; mend it") from error


def trials_of(ablation: Ablation) -> list[dict[str, Any]]:
    """The trainings: the preset itself (which tries the sampler's settings, too), and one change each."""
    base = load_config(ablation.preset).predictor.model_dump()
    trials: list[dict[str, Any]] = [{"setting": "base", "value": 0}]
    for setting, values in ablation.training.items():
        trials += [{"setting": setting, "value": value} for value in values if value != base[setting]]
    return trials + [{"setting": "train_curves", "value": value} for value in ablation.train_curves]


def run_ablation(ablation: Ablation, directory: Path, num_cpus: int | None) -> pd.DataFrame:
    """Run what is not done yet, and write `results.parquet`.

    Returns:
        A row for each setting and value: the measures of `mara_ray.predictor.scoring`, and CPU seconds.

    Raises:
        MachineError: a trial failed; the finished ones stay.
    """
    config = load_config(ablation.preset, [f"cluster.num_cpus={num_cpus}"] if num_cpus else [])
    connect(config.cluster)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    trainable = tune.with_parameters(_trial, ablation=ablation, predictor=config.predictor, seed=config.seed)
    storage = directory.absolute() / "trials"
    if Tuner.can_restore(str(storage / ablation.name)):
        tuner = Tuner.restore(
            str(storage / ablation.name), trainable=trainable, resume_errored=True, restart_errored=False
        )
    else:
        tuner = Tuner(
            trainable,
            param_space={"trial": tune.grid_search(trials_of(ablation))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(name=ablation.name, storage_path=str(storage), verbose=1),
        )
    results = tuner.fit()
    if results.errors:
        reason = str(results.errors[0]).strip().splitlines()[-1]
        raise MachineError(f"sweep: {len(results.errors)} trials failed ({reason}); run again to resume")
    rows = pd.DataFrame([row for result in results for row in (result.metrics or {})["rows"]])
    rows = rows.sort_values(["setting", "value"], ignore_index=True)
    with written_whole(directory / "results.parquet") as temporary:
        rows.to_parquet(temporary, index=False)
    return rows


def _trial(config: dict[str, Any], ablation: Ablation, predictor: PredictorConfig, seed: int) -> None:
    """One training, scored."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    setting, value = config["trial"]["setting"], config["trial"]["value"]
    changes: dict[str, Any] = {"epochs": ablation.epochs}
    if setting in PredictorConfig.model_fields:
        changes[setting] = type(getattr(predictor, setting))(value)
    settings = predictor.model_copy(update=changes)
    bank = CurveBank.read(located_bank(ablation.bank))
    train = bank.rows("id", "train")
    if setting == "train_curves":
        train = np.sort(np.random.default_rng(seed).permutation(train)[:value])
    started = os.times()
    trained = _train(settings, bank.ema_CL[train], bank.ema_CL[bank.rows("id", "validation")], seed)
    seconds = os.times().user - started.user
    rows = [{"setting": setting, "value": float(value), "train_cpu_s": seconds, **score(trained, bank)}]
    if setting == "base":
        rows += _sampler_rows(ablation, trained, bank, settings, seed)
    ray.tune.report({"rows": rows})


def _train(
    settings: PredictorConfig, train_CL: np.ndarray, validation_CL: np.ndarray, seed: int
) -> FlowPredictor:
    training = FlowTraining(settings, train_CL, seed, torch.device("cpu"))
    while not training.is_over:
        training.run_epoch(0, 1)
        predictor = make_predictor(settings, training.average, seed)
        training.keep_if_best(validation_error(predictor, validation_CL, settings.target_fractions))
    return calibrated(make_predictor(settings, training.best, seed), validation_CL, settings.target_fractions)


def _sampler_rows(
    ablation: Ablation, trained: FlowPredictor, bank: CurveBank, settings: PredictorConfig, seed: int
) -> list[dict[str, Any]]:
    rows = []
    for setting, values in ablation.sampler.items():
        for value in values:
            changes: dict[str, Any] = {setting: value}
            shape = replace(trained.shape, **changes)
            rows.append(
                {"setting": setting, "value": float(value), **score(trained.resampled(shape, seed), bank)}
            )
    return rows


def score(predictor: FlowPredictor, bank: CurveBank) -> dict[str, float]:
    """The measures on the validation curves; prefixes from 4 points on, whatever the warm-up."""
    rows = bank.rows("id", "validation")
    fractions = load_config("standard").workload.target_fractions
    ema_CL, target_CG = bank.ema_CL[rows], bank.target_losses(fractions)[rows]
    needed_CG = first_crossing(ema_CL, target_CG)
    num_seen_P = np.arange(4, bank.length_points, EVERY_POINTS)
    zeros_P = np.zeros(len(num_seen_P), np.int64)
    measures_CK = []
    for ema_L, target_G, needed_G in zip(ema_CL, target_CG, needed_CG, strict=True):
        samples_PGN = predictor.predict_prefixes(ema_L[None], zeros_P, num_seen_P, target_G[None][zeros_P])
        measures_CK.append(score_curve(samples_PGN, num_seen_P, needed_G, bank.length_points).measures_K)
    means = dict(zip(MEASURES, np.nanmean(measures_CK, axis=0).tolist(), strict=True))
    return {name: means[name] for name in SHOWN}
