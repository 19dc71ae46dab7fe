"""The frozen comparison: every method on the same episodes, a cell (set, load, workload root) at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import ray
import torch

from mara_ray.allocator.mat.policy import MATAllocator
from mara_ray.allocator.methods import method_named
from mara_ray.allocator.protocol import Allocator
from mara_ray.artifacts import file_hash, hash_of, written_whole
from mara_ray.config import RunConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.metrics import UNTRAINED, bound_rows, episode_rows
from mara_ray.evaluation.rollout import Rollout, rollout
from mara_ray.experiments.cluster import ANYWHERE
from mara_ray.experiments.run import Run
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import Workload, draw_workload

ARENA = {"curves": "bank.parquet", "forecasts": "", "allocator": ""}  # the files it is loaded from
REFERENCES = ("oracle_online",)  # stands in every comparison, asked for or not


@dataclass(frozen=True)
class Cell:
    """One frozen workload of the comparison."""

    set_name: str
    load: float
    root: int

    @property
    def name(self) -> str:
        """For files."""
        return f"{self.set_name}-p{self.load:g}-root{self.root}"

    @property
    def place(self) -> dict[str, Any]:
        """Its columns in tables of episodes."""
        return {"set_name": self.set_name, "load": self.load, "root": self.root}


def all_cells(config: RunConfig) -> list[Cell]:
    """The cells of a configuration."""
    evaluation = config.evaluation
    return [
        Cell(set_name, load, root)
        for load in evaluation.loads
        for set_name in evaluation.sets
        for root in range(evaluation.num_roots)
    ]


def read_bank(run: Run) -> CurveBank:
    """The run's curve bank."""
    return CurveBank.read(run.folder("curves") / "bank.parquet")


def draw_cell(config: RunConfig, bank: CurveBank, cell: Cell) -> Workload:
    """Draw a cell's episodes over the test curves of its set."""
    rows = bank.rows(cell.set_name, "test")
    path = ("workloads", cell.set_name, f"{cell.load:g}", cell.root)
    return draw_workload(
        config.workload, rows, cell.load, config.evaluation.episodes_per_root, config.seed, *path
    )


def workload_path(run: Run, cell: Cell) -> Path:
    """Where a cell's episodes are frozen."""
    return run.folder("workloads") / f"{cell.name}.npz"


def policy_name(method: str, training_seed: int) -> str:
    """The folder of a learned method's policy."""
    return f"{method}-seed{training_seed}"


def policy_names(config: RunConfig) -> list[str]:
    """Those of all policies of a run."""
    allocator = config.allocator
    return [policy_name(method, seed) for method in allocator.policies for seed in range(allocator.num_seeds)]


def policy_metrics(run: Run) -> dict[str, Path]:
    """The metrics file of every policy, by the policy's name."""
    return {name: run.folder("allocator") / name / "metrics.jsonl" for name in policy_names(run.config)}


def allocators(run: Run, name: str) -> Iterator[tuple[int, Allocator]]:
    """A method's allocators, with their training seeds.

    Raises:
        UserError: a trained policy is missing or damaged.
    """
    make = method_named(name).make
    if make is not None:
        yield UNTRAINED, make()
        return
    for training_seed in range(run.config.allocator.num_seeds):
        yield training_seed, MATAllocator.load(run.folder("allocator") / policy_name(name, training_seed))


@dataclass(frozen=True)
class Arena:
    """What a comparison is played with, loaded once."""

    run: Run
    bank: CurveBank
    replay: CurveReplay
    simulator: Simulator

    @classmethod
    def load(cls, run: Run) -> Arena:
        """Read the bank and set up the pool of nodes."""
        config = run.config
        bank = read_bank(run)
        replay = CurveReplay.from_bank(bank, config.workload.target_fractions)
        return cls(run, bank, replay, Simulator(config.simulator, config.workload.episode_steps, replay))

    def play(self, name: str, workload: Workload) -> Iterator[tuple[int, Rollout]]:
        """Play a workload under a method, once for each of its training seeds."""
        table = ForecastTable.load(self.run.folder("forecasts") / method_named(name).forecast)
        for training_seed, allocator in allocators(self.run, name):
            yield training_seed, rollout(self.simulator, table, allocator, workload)

    def episodes(self, methods: Iterable[str], workload: Workload, place: dict[str, Any]) -> pd.DataFrame:
        """Play a workload under methods; rows of `metrics.episode_rows`, with `place` as its columns."""
        return pd.concat(
            [
                episode_rows(played, method=name, training_seed=training_seed, **place)
                for name in methods
                for training_seed, played in self.play(name, workload)
            ],
            ignore_index=True,
        )


def cell_bounds(arena: Arena, cell: Cell, workload: Workload) -> pd.DataFrame:
    """The bounds of a cell, solved once for a workload, its curves and the pool of nodes."""
    run, simulator = arena.run, arena.run.config.simulator
    seconds = run.config.evaluation.milp_seconds
    path = workload_path(run, cell)
    key = hash_of(
        file_hash(path),
        arena.bank.content_hash,
        run.config.workload.target_fractions,
        simulator.model_dump(mode="json"),
        seconds,
    )
    cached = path.with_name(f"{cell.name}.bounds-{key}.parquet")
    if not cached.is_file():
        rows = bound_rows(workload, arena.replay, simulator, seconds=seconds, **cell.place)
        with written_whole(cached) as temporary:
            rows.to_parquet(temporary, index=False)
    return pd.read_parquet(cached)


@ray.remote(num_cpus=1, scheduling_strategy=ANYWHERE)
def compare_cell(run: Run, cell: Cell) -> pd.DataFrame:
    """Play one cell under every method; its rows and its bounds' rows."""
    torch.set_num_threads(1)
    run = run.on_this_node(**ARENA, workloads=cell.name)
    arena = Arena.load(run)
    workload = Workload.load(workload_path(run, cell))
    parts = [arena.episodes((*run.config.evaluation.methods, *REFERENCES), workload, cell.place)]
    parts.append(cell_bounds(arena, cell, workload))
    return pd.concat(parts, ignore_index=True)
