"""Generate a curve bank: real trainings as Ray tasks, on a GPU where a task was given one.

Candidates of a configuration are numbered 0, 1, 2...; each is a training that depends on the run's
seed and its number alone. The bank holds the candidates up to the one that completes the wanted
number of accepted curves, those that did not learn among them, so its bytes do not depend on the
number of workers, nor on a run that was killed and taken up again. Finished candidates lie in
`parts/`, one file each, written whole; a damaged one is trained again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from mara_ray.artifacts import write_json
from mara_ray.config import CurvesConfig
from mara_ray.curves.bank import CurveBank, smooth
from mara_ray.curves.candidates import (
    Candidate,
    make_candidate,
    part_path,
    read_part,
    train_candidate,
    write_part,
)
from mara_ray.curves.catalog import CONFIGURATIONS, configuration_named
from mara_ray.errors import MachineError, MaraError, UserError

MAX_CANDIDATES_FACTOR = 4  # candidates tried for each curve wanted, before giving up
# Place among the accepted curves of a configuration, modulo 20 -> split: 60 % train, 15 % validation and
# 25 % test, interleaved, so that more curves leave the splits of the first ones alone.
SPLITS = {"T": "train", "V": "validation", "X": "test"}
SPLIT_PATTERN = "TXTVTTXTTXTVTXTTVTXT"


@dataclass
class Series:
    """The candidates of one configuration, and how far they have come."""

    configuration: str
    wanted: int
    parts: dict[int, dict[str, Any]] = field(default_factory=dict)  # number -> finished candidate
    num_started: int = 0

    @property
    def num_accepted(self) -> int:
        """Accepted curves so far."""
        return sum(part["status"] == "ok" for part in self.parts.values())

    @property
    def num_missing(self) -> int:
        """Candidates still to be started, were all that run now accepted: none is trained for nothing."""
        return self.wanted - self.num_accepted - (self.num_started - len(self.parts))


def generate_bank(
    config: CurvesConfig, seed: int, directory: Path, progress: Callable[[int, int, str], None]
) -> CurveBank:
    """Train until every configuration has its accepted curves; writes bank.parquet and manifest.json.

    Ray must be initialised. Takes up what an earlier call left in `directory`.

    Args:
        config: which curves, how long, and how the work is cut into Ray tasks.
        seed: the run's seed.
        directory: where `parts/`, `bank.parquet` and `manifest.json` (which alone holds timings) go.
        progress: is told accepted curves, wanted curves, and the configuration.

    Raises:
        UserError: unknown configuration, missing data, no GPU where one is asked for, or too few
            candidates that learn.
        MachineError: a training failed on every retry.
    """
    started = time.monotonic()
    _check(config)
    all_series = [Series(name, wanted) for name, wanted in config.configurations.items()]
    _train_all(all_series, config, seed, directory, progress)
    rows = [row for series in all_series for row in _rows(series)]
    bank = CurveBank.from_rows(rows, source="generated curves")
    bank.write(directory / "bank.parquet")
    manifest = {
        "seed": seed,
        "config": config.model_dump(mode="json"),
        "bank_hash": bank.content_hash,
        "configurations": {series.configuration: _account(series) for series in all_series},
        "wall_s": round(time.monotonic() - started, 2),
    }
    write_json(directory / "manifest.json", manifest)
    return bank


@ray.remote(num_cpus=1)
def _train_candidates(candidates: list[Candidate]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    device = "cpu"
    if ray.get_gpu_ids():  # not torch.cuda.is_available(): that sees GPUs which are not this task's
        device = "cuda"
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    return [train_candidate(candidate, device) for candidate in candidates]


def _check(config: CurvesConfig) -> None:
    for name in config.configurations:
        configuration_named(name)
    num_gpus = ray.cluster_resources().get("GPU", 0)
    if config.num_gpus_per_task > num_gpus:
        raise UserError(
            f"curves.num_gpus_per_task: {config.num_gpus_per_task:g} asked for, but Ray has {num_gpus:g} GPUs"
            "; set it to 0"
        )


def _train_all(
    all_series: list[Series],
    config: CurvesConfig,
    seed: int,
    directory: Path,
    progress: Callable[[int, int, str], None],
) -> None:
    """Start tasks, keep what they bring, and start more for the candidates that did not learn."""
    work = _train_candidates.options(
        num_gpus=config.num_gpus_per_task,
        max_retries=config.max_retries,
        retry_exceptions=[OSError, RuntimeError],
    )
    wanted = sum(series.wanted for series in all_series)
    running: dict[ray.ObjectRef, tuple[Series, list[int]]] = {}
    try:
        while True:
            for series in all_series:
                for numbers in _start(series, config, seed, directory):
                    batch = [make_candidate(series.configuration, n, config, seed) for n in numbers]
                    running[work.remote(batch)] = (series, numbers)
            accepted = sum(series.num_accepted for series in all_series)
            progress(accepted, wanted, next(iter(running.values()))[0].configuration if running else "")
            if not running:
                return
            reference = ray.wait(list(running))[0][0]
            series, numbers = running.pop(reference)
            for number, part in zip(numbers, _result(reference, series), strict=True):
                series.parts[number] = part
                write_part(part_path(directory, series.configuration, number), part)
    finally:
        for reference in running:
            ray.cancel(reference)


def _start(series: Series, config: CurvesConfig, seed: int, directory: Path) -> Iterator[list[int]]:
    """Take up finished candidates, and give the numbers of the next ones to train, a task's worth a time."""
    numbers: list[int] = []
    while series.num_missing > 0:
        number = series.num_started
        if number == MAX_CANDIDATES_FACTOR * series.wanted:
            if len(series.parts) == number:
                raise UserError(
                    f"curves.configurations.{series.configuration}: {series.wanted} accepted curves wanted,"
                    f" but only {series.num_accepted} of {number} trainings learned; ask for longer ones"
                    " (curves.length_points, curves.batches_per_point)"
                )
            break
        series.num_started += 1
        candidate = make_candidate(series.configuration, number, config, seed)
        part = read_part(part_path(directory, series.configuration, number), candidate)
        if part is not None:
            series.parts[number] = part
            continue
        numbers.append(number)
        if len(numbers) == config.curves_per_task:
            yield numbers
            numbers = []
    if numbers:
        yield numbers


def _result(reference: ray.ObjectRef, series: Series) -> list[dict[str, Any]]:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MaraError):
            raise error.cause from error
        reason: object = repr(error.cause)
    except ray.exceptions.RayError as error:
        reason = type(error).__name__
    raise MachineError(
        f"curves: a training of {series.configuration} failed, and retries did not help ({reason}); run again"
        " to go on from the finished ones"
    )


def _rows(series: Series) -> Iterator[dict[str, Any]]:
    """Rows of the bank, up to the candidate that completes the accepted ones."""
    raw_CL = np.array([series.parts[number]["raw"] for number in range(len(series.parts))], np.float32)
    ema_CL = smooth(raw_CL)
    num_accepted = 0
    for number, part in sorted(series.parts.items()):
        if num_accepted == series.wanted:
            return
        candidate, accepted = part["candidate"], part["status"] == "ok"
        set_name = CONFIGURATIONS[series.configuration].set
        place = SPLIT_PATTERN[num_accepted % len(SPLIT_PATTERN)] if set_name == "id" else "X"
        yield {
            "curve_id": candidate["curve_id"],
            "configuration": series.configuration,
            "set": set_name,
            "split": SPLITS[place],
            "seed": candidate["seed"],
            "accepted": accepted,
            "status": part["status"],
            "hyperparameters": json.dumps(candidate["hyperparameters"], sort_keys=True),
            "raw": raw_CL[number].tolist(),
            "ema": ema_CL[number].tolist(),
        }
        num_accepted += accepted


def _account(series: Series) -> dict[str, float]:
    """What one configuration took, for the manifest."""
    seconds = [part["cpu_s"] for part in series.parts.values()]
    return {
        "accepted": series.num_accepted,
        "candidates": len(series.parts),
        "acceptance_percent": round(100 * series.num_accepted / len(series.parts), 1),
        "cpu_s_per_curve": round(float(np.mean(seconds)), 3),
    }
