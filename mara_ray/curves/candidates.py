"""One training of the bank: what its curve depends on, the training itself, and its file of results."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mara_ray.artifacts import hash_of, read_json, write_json
from mara_ray.config import CurvesConfig
from mara_ray.curves.catalog import CONFIGURATIONS, Hyperparameters
from mara_ray.curves.training import make_task
from mara_ray.errors import UserError
from mara_ray.seeding import generator, seed_integer

LEARNED_SHARE = 0.85  # a curve is accepted when its last tenth lies below this share of its start


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


def train_candidate(candidate: Candidate, device: str) -> dict[str, Any]:
    """Do one training.

    Returns:
        Its part: {"candidate", "raw" (L losses, float32 values), "status", "cpu_s"}; a training that
        diverges stops there and keeps its highest loss.
    """
    started = time.process_time()
    task = make_task(
        candidate.configuration,
        candidate.hyperparameters,
        candidate.seed,
        candidate.batches_per_point,
        device,
    )
    raw_L = np.full(candidate.length_points, np.nan, np.float32)
    raw_L[0] = task.initial_loss
    for point in range(1, candidate.length_points):
        raw_L[point] = task.run_block()
        if not np.isfinite(raw_L[point]):
            break
    if np.isfinite(raw_L).all():
        status = "ok" if has_learned(raw_L) else "flat"
    else:
        raw_L[~np.isfinite(raw_L)] = raw_L[np.isfinite(raw_L)].max()
        status = "diverged"
    return {
        "candidate": asdict(candidate),
        "raw": raw_L.tolist(),
        "status": status,
        "cpu_s": time.process_time() - started,
    }


def has_learned(raw_L: np.ndarray) -> bool:
    """Whether a curve counts as learning: mean of the last 10 % < 0.85 x mean of the first 2 %."""
    length = len(raw_L)
    end = raw_L[-max(1, round(0.1 * length)) :].mean()
    return bool(end < LEARNED_SHARE * raw_L[: max(1, round(0.02 * length))].mean())


def part_path(directory: Path, configuration: str, number: int) -> Path:
    """Where the results of one candidate lie."""
    return directory / "parts" / f"{configuration}-{number:05d}.json"


def write_part(path: Path, part: dict[str, Any]) -> None:
    """Keep the results of a candidate, whole or not at all, with their hash."""
    write_json(path, {"part": part, "hash": hash_of(part)})


def read_part(path: Path, candidate: Candidate) -> dict[str, Any] | None:
    """A finished candidate; None if there is none, it is damaged, or it belongs to other settings."""
    try:
        content = read_json(path)
        part = content["part"]
        if content["hash"] == hash_of(part) and part["candidate"] == asdict(candidate):
            return part
    except (UserError, KeyError, TypeError):
        pass
    return None
