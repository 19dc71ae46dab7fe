"""One training of the bank: what its curve depends on, and the training itself."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mara_ray.config import CurvesConfig
from mara_ray.curves.catalog import CONFIGURATIONS
from mara_ray.curves.configuration import Hyperparameters
from mara_ray.curves.training import make_task
from mara_ray.seeding import generator, seed_integer

LEARNED_SHARE = 0.85  # a curve is accepted when its last tenth lies below this share of its start
DIVERGED_SHARE = 1.5  # and has diverged when it lies above this one


@dataclass(frozen=True)
class Candidate:
    """One training: all that its curve depends on."""

    curve_id: str
    configuration: str
    seed: int
    hyperparameters: Hyperparameters
    length_points: int
    batches_per_point: int


def make_candidate(configuration: str, number: int, config: CurvesConfig, seed: int) -> Candidate:
    """The candidate of a number: its seed, and the hyperparameters drawn from it."""
    task_seed = seed_integer(seed, "curves", configuration, number)
    hyperparameters = CONFIGURATIONS[configuration].draw(generator(task_seed, "hyperparameters"))
    hyperparameters["schedule_batches"] = (config.length_points - 1) * config.batches_per_point
    return Candidate(
        f"{configuration}/{number:05d}",
        configuration,
        task_seed,
        hyperparameters,
        config.length_points,
        config.batches_per_point,
    )


def train_candidate(candidate: Candidate, device: str, data_folder: Path) -> dict[str, Any]:
    """Do one training.

    Returns:
        {"candidate", "raw" (L losses, float32 values), "status", "cpu_s"}; a training that meets a loss
        which is no finite number stops there and keeps its highest loss.
    """
    started = time.process_time()
    task = make_task(
        candidate.configuration,
        candidate.hyperparameters,
        candidate.seed,
        candidate.batches_per_point,
        device,
        data_folder,
    )
    raw_L = np.full(candidate.length_points, np.nan, np.float32)
    raw_L[0] = task.initial_loss
    for point in range(1, candidate.length_points):
        raw_L[point] = task.run_block()
        if not np.isfinite(raw_L[point]):
            break
    if np.isfinite(raw_L).all():
        status = status_of(raw_L)
    else:
        status = "diverged" if np.isinf(raw_L).any() else "nan"
        raw_L[~np.isfinite(raw_L)] = raw_L[np.isfinite(raw_L)].max()
    return {
        "candidate": asdict(candidate),
        "raw": raw_L.tolist(),
        "status": status,
        "cpu_s": time.process_time() - started,
    }


def status_of(raw_L: np.ndarray) -> str:
    """What became of a training whose losses are finite: "ok", "flat" or "diverged".

    It is accepted as learning ("ok") when the mean of its last 10 % lies under 0.85 times the mean of its
    first 2 %; over 1.5 times that it has diverged.
    """
    length = len(raw_L)
    end = raw_L[-max(1, round(0.1 * length)) :].mean()
    start = raw_L[: max(1, round(0.02 * length))].mean()
    if end < LEARNED_SHARE * start:
        return "ok"
    return "diverged" if end > DIVERGED_SHARE * start else "flat"
