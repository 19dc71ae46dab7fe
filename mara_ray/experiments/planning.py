"""What a sweep will do: which stages its cells share, what they need, how long they take, if they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import ray

from mara_ray.artifacts import hash_of
from mara_ray.config import RunConfig
from mara_ray.curves.bank import located_bank
from mara_ray.errors import UserError
from mara_ray.experiments.comparison import all_cells
from mara_ray.experiments.grid import Cell, Grid
from mara_ray.experiments.membership import RECORD_FILE, read_record, shared_folder
from mara_ray.experiments.pipeline import Stage, inputs_of
from mara_ray.experiments.playing import EPISODES, play_stage
from mara_ray.experiments.stages import STAGES

SHARED = "shared"  # the group of what several cells have in common
TRIAL_BYTES = 400_000_000  # memory of a trial's own process, which waits for its tasks and holds no CPU

SPREAD = ("curves", "allocator", "evaluation")  # stages whose tasks take all CPUs; the others take one
# Seconds of one core, as measured on a laptop; what has been done in a sweep corrects them.
CURVE_SECONDS = 1.5  # of 600 mini-batches of a small network, those of rejected trainings included
PREDICTOR_START_SECONDS, PREDICTOR_CURVE_SECONDS = 15.0, 0.004  # Ray Train; a curve and epoch
FORECAST_CURVE_SECONDS, RIVAL_CURVE_SECONDS = 0.05, 0.025  # a curve, all its prefixes; a rival more
TRAINING_STEP_SECONDS = 6e-5  # a step of a training episode
PLAY_STEP_SECONDS = 3e-5  # a step of an evaluation episode, bounds included


@dataclass
class Work:
    """One stage that one or more cells need.

    Attributes:
        stage: which.
        config: the configuration of the first cell that needs it.
        cells: names of the cells that need it.
        core_seconds: how long one core takes, by the stated costs.
        measured_s: how long it took, if it is done.
    """

    stage: Stage
    config: RunConfig
    cells: list[str]
    core_seconds: float
    measured_s: float | None = None

    def stated_s(self, num_cpus: float) -> float:
        """How long it takes on so many CPUs, by the stated costs."""
        return self.core_seconds / (num_cpus if self.stage.name in SPREAD else 1.0)

    @property
    def request(self) -> dict[str, float]:
        """What must be free at once for it to be done."""
        config = self.config
        if self.stage.name == "curves" and config.curves.bank is None:
            return {"CPU": 1, "GPU": config.curves.num_gpus_per_task}
        if self.stage.name == "predictor" and config.predictor.trained is None:
            workers = config.predictor.num_workers
            return {"CPU": workers, "GPU": workers if config.predictor.use_gpu else 0}
        if self.stage.name == "allocator" and self.trains:
            return {"CPU": 1 + config.allocator.num_env_runners, "GPU": 0}
        return {"CPU": 1, "GPU": 0}

    @property
    def trains(self) -> bool:
        """Whether something is trained."""
        config = self.config
        return {
            "curves": config.curves.bank is None,
            "predictor": config.predictor.trained is None,
            "forecasts": "quantile" in config.evaluation.rivals
            and str(config.predictor.trained) != "standard",
            "allocator": config.allocator.trained is None and bool(config.allocator.policies),
        }.get(self.stage.name, False)


@dataclass(frozen=True)
class Plan:
    """All work of a sweep, each piece once.

    Attributes:
        stages: of every cell, in order; the last makes the rows.
        works: by key, in the order of stages and cells.
        keys: for every cell the key of each stage.
    """

    stages: tuple[Stage, ...]
    works: dict[str, Work]
    keys: dict[str, dict[str, str]]

    def groups(self, cell: str) -> dict[str, str]:
        """The group of each stage of a cell: its own, or the shared one."""
        return {
            stage: cell if len(self.works[key].cells) == 1 else SHARED
            for stage, key in self.keys[cell].items()
        }

    def left_s(self, num_cpus: float) -> float:
        """Seconds of all that is not done, stage after stage: stated costs, corrected by what was measured.

        Args:
            num_cpus: of the cluster.
        """
        return sum(
            work.stated_s(num_cpus) * self._correction(work.stage.name, num_cpus)
            for work in self.works.values()
            if work.measured_s is None
        )

    def _correction(self, stage: str, num_cpus: float) -> float:
        """Measured over stated seconds of a stage that is done for some cells; 1 if for none."""
        done = [work for work in self.works.values() if work.stage.name == stage and work.measured_s]
        measured = sum(work.measured_s or 0.0 for work in done)
        return measured / sum(work.stated_s(num_cpus) for work in done) if done else 1.0


def stages_of(grid: Grid) -> tuple[Stage, ...]:
    """The stages of every cell; the last makes the rows."""
    if grid.kind == "play":
        if not grid.plays:
            raise UserError("sweep: plays: nothing is named; add `plays: [stress]`")
        return (*(stage for stage in STAGES if stage.name in _BEFORE_PLAY), play_stage(grid.plays))
    names = [stage.name for stage in STAGES]
    return STAGES[: names.index(grid.kind) + 1]


_BEFORE_PLAY = ("curves", "predictor", "forecasts", "allocator")


def plan_of(grid: Grid, cells: Sequence[Cell], shared: Path) -> Plan:
    """What cells have in common, and what of it is done already in the shared folder."""
    stages = stages_of(grid)
    works: dict[str, Work] = {}
    all_keys: dict[str, dict[str, str]] = {}
    for cell in cells:
        keys: dict[str, str] = {}
        records: dict[str, Any] = {}
        for stage in stages:
            key = hash_of(stage.name, stage.settings(cell.config), [keys[need] for need in stage.needs])
            keys[stage.name] = key
            if key not in works:
                seconds = core_seconds(stage.name, cell.config, len(grid.plays))
                works[key] = Work(stage, cell.config, [], seconds)
            works[key].cells.append(cell.name)
            if all(need in records for need in stage.needs):
                path = shared_folder(shared, stage.name, inputs_of(stage, cell.config, records)) / RECORD_FILE
                if record := read_record(path):
                    records[stage.name] = record
                    works[key].measured_s = float(record["wall_s"])
        all_keys[cell.name] = keys
    order = {stage.name: place for place, stage in enumerate(stages)}
    ordered = dict(sorted(works.items(), key=lambda item: order[item[1].stage.name]))
    return Plan(stages, ordered, all_keys)


def core_seconds(stage: str, config: RunConfig, num_plays: int) -> float:
    """Seconds that one core takes for a stage, by the stated costs."""
    curves, allocator, evaluation = config.curves, config.allocator, config.evaluation
    trained_here = curves.bank is None
    if curves.bank is None:
        num_curves = sum(curves.configurations.values())
    else:
        num_curves = pq.read_metadata(located_bank(curves.bank)).num_rows
    num_seeds = allocator.num_seeds
    plays = sum(num_seeds if name in allocator.policies else 1 for name in evaluation.methods) + 1
    steps = config.workload.episode_steps
    if stage == "curves" and trained_here:
        return num_curves * CURVE_SECONDS * curves.length_points * curves.batches_per_point / 600
    if stage == "predictor" and config.predictor.trained is None:
        return PREDICTOR_START_SECONDS + PREDICTOR_CURVE_SECONDS * 0.6 * num_curves * config.predictor.epochs
    if stage == "forecasts":
        return num_curves * (FORECAST_CURVE_SECONDS + RIVAL_CURVE_SECONDS * len(evaluation.rivals))
    if stage == "allocator" and allocator.trained is None:
        episodes = allocator.updates * allocator.episodes_per_update
        return len(allocator.policies) * num_seeds * episodes * steps * TRAINING_STEP_SECONDS
    if stage == "evaluation":
        episodes = len(all_cells(config)) * evaluation.episodes_per_root
        return plays * episodes * steps * PLAY_STEP_SECONDS
    if stage == "play":
        return plays * EPISODES * num_plays * steps * PLAY_STEP_SECONDS
    return 1.0


def cluster_limits() -> dict[str, float]:
    """The CPUs, GPUs and memory that there are, or that an autoscaler may add."""
    limits = {name: float(amount) for name, amount in ray.cluster_resources().items()}
    promised = ray._private.state.state.get_max_resources_from_cluster_config() or {}
    for name, amount in promised.items():
        limits[name] = max(limits.get(name, 0.0), float(amount))
    return limits


def check_plan(plan: Plan, limits: dict[str, float]) -> None:
    """Refuse what would wait for ever.

    Raises:
        UserError: a stage needs more than the cluster has.
    """
    for work in plan.works.values():
        if work.measured_s is not None:
            continue
        for name, amount in work.request.items():
            if amount > limits.get(name, 0.0):
                raise UserError(
                    f"sweep: {work.stage.name} of {work.cells[0]} needs {amount:g} {name} at once, and the"
                    f" cluster has {limits.get(name, 0.0):g}; {_REMEDIES[work.stage.name, name]}"
                )
    if limits.get("memory", 0.0) < TRIAL_BYTES:
        raise UserError(
            f"sweep: a trial needs {TRIAL_BYTES / 1e6:.0f} MB of memory, and the cluster has"
            f" {limits.get('memory', 0.0) / 1e6:.0f}; free some"
        )


_CPU_REMEDY = "take a cluster with CPUs for tasks"
_REMEDIES = {
    ("curves", "GPU"): "set curves.num_gpus_per_task=0, or take a cluster with GPUs",
    ("predictor", "CPU"): "set fewer predictor.num_workers",
    ("predictor", "GPU"): "set predictor.use_gpu=false, or fewer predictor.num_workers",
    ("allocator", "CPU"): "set fewer allocator.num_env_runners",
    **{(name, "CPU"): _CPU_REMEDY for name in ("curves", "forecasts", "workloads", "evaluation", "play")},
}
