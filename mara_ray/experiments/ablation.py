"""Which parts of the predictor matter: one change at a time, a Tune grid judged on validation curves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import ValidationError
from ray import tune

from mara_ray import __version__
from mara_ray.artifacts import file_hash, hash_of, written_whole
from mara_ray.config import PredictorConfig, RunConfig, load_config
from mara_ray.curves.bank import CurveBank, first_crossing, located_bank
from mara_ray.errors import UserError
from mara_ray.experiments.cluster import connect
from mara_ray.experiments.grid import Ablation
from mara_ray.experiments.locks import locked
from mara_ray.experiments.tracking import Place, tracked
from mara_ray.experiments.trials import run_trials
from mara_ray.predictor.fitting import FlowTraining, calibrated, make_predictor, validation_error
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.scoring import MEASURES, score_curve
from mara_ray.progress import Report
from mara_ray.results import RESULTS_FILE

EVERY_POINTS = 5  # one prefix in so many is scored
SHOWN = ("capped_mae", "success_accuracy", "crps", "coverage_90")


def trials_of(ablation: Ablation, config: RunConfig) -> list[dict[str, Any]]:
    """The trainings: the preset itself (which tries the sampler's settings, too), and one change each.

    Raises:
        UserError: there is no such setting, or it cannot have such a value; or the bank is missing.
    """
    base = config.predictor.model_dump()
    for group in (ablation.sampler, ablation.training):
        for setting, values in group.items():
            for value in values:
                changed(config.predictor, setting, value)
    trials: list[tuple[str, float]] = [("base", 0)]
    for setting, values in ablation.training.items():
        trials += [(setting, value) for value in values if value != base[setting]]
    trials += [("train_curves", value) for value in ablation.train_curves]
    made_from = hash_of(
        ablation.model_dump(mode="json"),
        config.predictor.model_dump(mode="json"),
        config.seed,
        file_hash(located_bank(ablation.bank)),
        __version__,
    )
    return [
        {"name": f"{setting}={value:g}", "setting": setting, "value": value, "config": made_from}
        for setting, value in trials
    ]


def changed(predictor: PredictorConfig, setting: str, value: float) -> PredictorConfig:
    """The settings with another value of one of them.

    Raises:
        UserError: there is no such setting, or it cannot have such a value.
    """
    settings = predictor.model_dump()
    if not isinstance(settings.get(setting), int | float):
        raise UserError(f"sweep: {setting!r} is no number among the settings of `predictor`; leave it out")
    try:
        return PredictorConfig.model_validate({**settings, setting: type(settings[setting])(value)})
    except ValidationError as error:
        reason = error.errors()[0]["msg"].lower()
        raise UserError(f"sweep: {setting}: {reason}, not {value:g}; mend it") from error


def run_ablation(ablation: Ablation, config: RunConfig, directory: Path, report: Report) -> pd.DataFrame:
    """Run what is not done yet, and write `results.parquet`.

    Returns:
        A row for each setting and value: the measures of `mara_ray.predictor.scoring`, and CPU seconds.

    Raises:
        UserError: another sweep is at work in the directory.
        MachineError: a trial failed; the finished ones stay.
    """
    with locked(directory / ".lock"):
        connect(config.cluster)
        results = run_trials(
            _trial,
            {"ablation": ablation, "config": config, "tracking": directory.absolute() / "tracking"},
            trials_of(ablation, config),
            directory / "trials",
            ablation.name,
            report,
        )
        rows = pd.DataFrame([row for result in results for row in (result.metrics or {})["rows"]])
        rows = rows.sort_values(["setting", "value"], ignore_index=True)
        rows.insert(0, "sweep", ablation.name)
        rows.attrs = {"sweep": ablation.name, "about": ablation.about, "kind": ablation.kind}
        with written_whole(directory / RESULTS_FILE) as temporary:
            rows.to_parquet(temporary, index=False)
    return rows


def _trial(trial: dict[str, Any], ablation: Ablation, config: RunConfig, tracking: Path) -> None:
    """One training, scored and logged."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    name, setting, value = (trial["trial"][key] for key in ("name", "setting", "value"))
    predictor, seed = config.predictor, config.seed
    settings = predictor if setting in ("base", "train_curves") else changed(predictor, setting, value)
    settings = settings.model_copy(update={"epochs": ablation.epochs})
    bank = CurveBank.read(located_bank(ablation.bank))
    train = bank.rows("id", "train")
    if setting == "train_curves":
        train = np.sort(np.random.default_rng(seed).permutation(train)[:value])
    started = os.times()
    place = Place(
        tracking, f"{ablation.name}/{name}", f"{name}/predictor", f"{ablation.name}-{name}", {setting: value}
    )
    with tracked(config.model_copy(update={"predictor": settings}), "predictor", place, {}) as logged:
        trained = _train(settings, bank.ema_CL[train], bank.ema_CL[bank.rows("id", "validation")], seed)
        seconds = os.times().user - started.user
        scores = score(trained, bank)
        logged.summary.update(scores)
    rows = [{"setting": setting, "value": float(value), "train_cpu_s": seconds, **scores}]
    if setting == "base":
        rows += _sampler_rows(ablation, trained, bank, settings, seed)
    tune.report({"rows": rows, **{name: rows[0][name] for name in SHOWN}})


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
