"""Generate a curve bank: real trainings as Ray tasks, on a GPU where a task was given one.

Candidates of a configuration are numbered 0, 1, 2...; each is a training that depends on the run's
seed and its number alone. The bank holds the candidates up to the one that completes the wanted
number of accepted curves, those that did not learn among them, so its bytes do not depend on the
number of workers, nor on a run that was killed and taken up again.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from mara_ray.artifacts import write_json
from mara_ray.config import CurvesConfig
from mara_ray.curves.bank import CurveBank, smooth, split_of
from mara_ray.curves.candidates import Candidate, make_candidate, train_candidate
from mara_ray.curves.catalog import CONFIGURATIONS, configuration_named
from mara_ray.curves.datasets import MISSING
from mara_ray.curves.finished import FinishedTrainings
from mara_ray.errors import MachineError, MaraError, UserError
from mara_ray.pools import cpu_nodes, has_pools
from mara_ray.provenance import command, versions

MAX_CANDIDATES_FACTOR = 4  # candidates tried for each curve wanted, before giving up
TASKS_PER_CPU = 4  # Ray tasks in flight for each CPU of the cluster


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

    Ray must be initialised. Takes up what an earlier call left in `directory`. `num_gpus_per_task`, the
    retries and the tasks in flight do not change what is made.

    Args:
        config: which curves, how long, and how the work is cut into Ray tasks.
        seed: the run's seed.
        directory: where `bank.parquet`, `manifest.json` (which has the timings) and finished trainings go.
        progress: is told accepted curves, wanted curves, and the configuration.

    Raises:
        UserError: unknown configuration, missing data, no GPU where one is asked for, or too few
            candidates that learn.
        MachineError: a training failed on every retry.
    """
    started = time.monotonic()
    _check(config)
    finished = FinishedTrainings(directory)
    all_series = [Series(name, wanted) for name, wanted in config.configurations.items()]
    _train_all(all_series, config, seed, finished, progress)
    finished.compact()
    rows = [row for series in all_series for row in _rows(series)]
    bank = CurveBank.from_rows(rows, source="generated curves")
    bank.write(directory / "bank.parquet")
    manifest = {
        "seed": seed,
        "config": config.model_dump(mode="json"),
        "bank_hash": bank.content_hash,
        "curves": len(bank),
        "command": command(),
        "versions": versions(),
        "machine": {"processor": platform.machine(), "cpus": ray.cluster_resources().get("CPU", 0)},
        "configurations": {series.configuration: _account(series) for series in all_series},
        "trained_on": dict(Counter(part["place"] for s in all_series for part in s.parts.values())),
        "wall_s": round(time.monotonic() - started, 2),
    }
    write_json(directory / "manifest.json", manifest)
    return bank


@ray.remote(num_cpus=1, scheduling_strategy="DEFAULT")  # not within the resources of a Tune trial
def _train_candidates(candidates: list[Candidate], data_folder: Path) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    device = "cpu"
    # A GPU must be this task's own: torch alone would see all of them.
    gpu_ids = ray.get_gpu_ids()
    if gpu_ids and torch.cuda.is_available():
        device = "cuda"
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    place = ray.get_runtime_context().get_node_id() + "".join(f" gpu {number}" for number in gpu_ids)
    return [train_candidate(candidate, device, data_folder) | {"place": place} for candidate in candidates]


def _check(config: CurvesConfig) -> None:
    for name in config.configurations:
        data = configuration_named(name).data
        reason = MISSING[data](config.data_folder.absolute()) if data else None
        if reason:
            raise UserError(
                f"curves.configurations.{name}: {reason}, set curves.data_folder, or drop the configuration"
            )
    num_gpus = ray.cluster_resources().get("GPU", 0)
    if config.num_gpus_per_task > num_gpus and not has_pools():
        raise UserError(
            f"curves.num_gpus_per_task: {config.num_gpus_per_task:g} asked for, but Ray has {num_gpus:g} GPUs"
            "; set it to 0"
        )


def _train_all(
    all_series: list[Series],
    config: CurvesConfig,
    seed: int,
    finished: FinishedTrainings,
    progress: Callable[[int, int, str], None],
) -> None:
    """Start tasks, keep what they bring, and start more for the candidates that did not learn."""
    work = _train_candidates.options(
        num_gpus=config.num_gpus_per_task,
        max_retries=config.max_retries,
        retry_exceptions=[OSError, RuntimeError, MemoryError],
        label_selector=cpu_nodes() if config.num_gpus_per_task == 0 else None,
    )
    data_folder = config.data_folder.absolute()
    wanted = sum(series.wanted for series in all_series)
    running: dict[ray.ObjectRef, tuple[Series, list[int]]] = {}

    def room() -> int:
        num_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        return TASKS_PER_CPU * num_cpus - len(running)

    try:
        while True:
            for series in all_series:
                for numbers in _start(series, config, seed, finished, room):
                    batch = [make_candidate(series.configuration, n, config, seed) for n in numbers]
                    running[work.remote(batch, data_folder)] = (series, numbers)
            accepted = sum(series.num_accepted for series in all_series)
            progress(accepted, wanted, next(iter(running.values()))[0].configuration if running else "")
            if not running:
                return
            reference = ray.wait(list(running))[0][0]
            series, numbers = running.pop(reference)
            for number, part in zip(numbers, _result(reference, series), strict=True):
                series.parts[number] = part
                finished.add(part)
    finally:
        for reference in running:
            ray.cancel(reference)


def _start(
    series: Series,
    config: CurvesConfig,
    seed: int,
    finished: FinishedTrainings,
    room: Callable[[], int],
) -> Iterator[list[int]]:
    """Take up finished candidates, and give the numbers of the next ones to train, a task's worth a time.

    Ends when enough are under way, or when there is no `room` for one more task.
    """
    numbers: list[int] = []
    while series.num_missing > 0 and room() > 0:
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
        part = finished.get(candidate)
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
        yield {
            "curve_id": candidate["curve_id"],
            "configuration": series.configuration,
            "set": set_name,
            "split": split_of(set_name, num_accepted),
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
    statuses = [part["status"] for part in series.parts.values()]
    seconds = float(sum(part["cpu_s"] for part in series.parts.values()))
    return {
        "accepted": series.num_accepted,
        "candidates": len(statuses),
        **{status: statuses.count(status) for status in ("flat", "diverged", "nan")},
        "acceptance_percent": round(100 * series.num_accepted / len(statuses), 1),
        "cpu_s": round(seconds, 1),
        "cpu_s_per_accepted_curve": round(seconds / max(1, series.num_accepted), 3),
    }
