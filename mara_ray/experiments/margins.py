"""Do the margins survive real costs? The frozen episodes again, with costly switching and unlike nodes.

Allocators and their policies stay as they are; only the pool of nodes changes. Axis letter: Z resamples.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray
import torch

from mara_ray.artifacts import write_json, written_whole
from mara_ray.config import RunConfig
from mara_ray.errors import UserError
from mara_ray.evaluation.margin_plots import margin_figure
from mara_ray.evaluation.stats import interval
from mara_ray.evaluation.tables import MEAN, REFERENCE, levels_of, outcomes_of
from mara_ray.experiments.cluster import connect, wait_for
from mara_ray.experiments.comparison import ARENA, Arena, Cell, all_cells, workload_path
from mara_ray.experiments.pipeline import Run
from mara_ray.pools import cpu_nodes
from mara_ray.progress import Report
from mara_ray.seeding import generator
from mara_ray.workload.episodes import Workload

COSTS = (0, 1, 2, 5)  # steps
SPEED_SPREADS = (0.0, 0.25, 0.5, 0.75)  # speeds are evenly spaced in 1 - spread .. 1 + spread


def variants(config: RunConfig) -> dict[tuple[str, float], RunConfig]:
    """The configurations that are played, by setting and value."""
    changed: dict[tuple[str, float], dict[str, Any]] = {
        **{("switch_cost", cost): {"switch_cost_steps": cost} for cost in COSTS},
        **{("migration_cost", cost): {"migration_cost_steps": cost} for cost in COSTS},
        **{
            ("speed_spread", spread): {"node_speeds": _speeds(spread, config.simulator.num_nodes)}
            for spread in SPEED_SPREADS
        },
    }
    return {
        key: config.model_copy(update={"simulator": config.simulator.model_copy(update=update)})
        for key, update in changed.items()
    }


def _speeds(spread: float, num_nodes: int) -> tuple[float, ...] | None:
    """Evenly spaced speeds; None, which is 1 for all, without a spread."""
    return tuple(np.linspace(1 - spread, 1 + spread, num_nodes).round(6).tolist()) if spread else None


@ray.remote(num_cpus=1)
def _play(run: Run, cell: Cell) -> pd.DataFrame:
    torch.set_num_threads(1)
    run = run.on_this_node(**ARENA, workloads=cell.name)
    arena = Arena.load(run)
    workload = Workload.load(workload_path(run, cell))
    return arena.episodes(run.config.evaluation.methods, workload, cell.place)


def play_margins(run: Run, report: Report) -> Path:
    """Play the first load of a run whose policies are trained, under all variants.

    Writes margins/episodes.parquet, margins/margins.json and margins/margins.png below the run's directory.

    Returns:
        The folder.

    Raises:
        UserError: LARA is not among the methods.
    """
    if REFERENCE not in run.config.evaluation.methods:
        raise UserError(f"evaluation.methods: margins are over {REFERENCE!r}; add it")
    connect(run.config.cluster)
    load = run.config.evaluation.loads[0]
    cells = [cell for cell in all_cells(run.config) if cell.load == load]
    played = variants(run.config)
    play = _play.options(label_selector=cpu_nodes())
    # Variants without a cost or a spread are one and the same, and are played once.
    tasks = {
        (config.simulator, cell): play.remote(replace(run, config=config), cell)
        for config in {config.simulator: config for config in played.values()}.values()
        for cell in cells
    }
    wait_for(list(tasks.values()), lambda finished: report(finished, len(tasks), "workloads"))
    rows = pd.concat(
        [
            ray.get(tasks[config.simulator, cell]).assign(setting=setting, value=value)
            for (setting, value), config in played.items()
            for cell in cells
        ],
        ignore_index=True,
    )
    folder = run.folder("margins")
    with written_whole(folder / "episodes.parquet") as temporary:
        rows.to_parquet(temporary, index=False)
    margins = margins_of(rows, load, run.config.evaluation.bootstrap_resamples, run.config.seed)
    write_json(folder / "margins.json", margins.to_dict("records"))
    with written_whole(folder / "margins.png") as temporary:
        temporary.write_bytes(margin_figure(margins).png)
    run.send_folder(folder.name)
    return folder


def margins_of(rows: pd.DataFrame, load: float, resamples: int, seed: int) -> pd.DataFrame:
    """The lead of every method over LARA, mean over sets: setting, value, method, points, low, high.

    The intervals are those of `evaluation.stats`: paired, over training seeds and workload roots.
    """
    found = []
    for setting, value in rows[["setting", "value"]].drop_duplicates().itertuples(index=False):
        part = rows[(rows["setting"] == setting) & (rows["value"] == value)]
        levels = levels_of(outcomes_of(part, load), resamples, generator(seed, "bootstrap", MEAN))
        reference, reference_Z = levels[REFERENCE][MEAN]
        for method, by_set in levels.items():
            level, replicates_Z = by_set[MEAN]
            low, high = interval(replicates_Z - reference_Z)
            found.append((setting, float(value), method, level - reference, low, high))
    return pd.DataFrame(found, columns=["setting", "value", "method", "points", "low", "high"])
