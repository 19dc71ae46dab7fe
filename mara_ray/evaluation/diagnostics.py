"""How the methods differ in operation: queues, waiting, switching, waste; means with 95 % intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from mara_ray.evaluation.stats import Outcomes, draw_resampling, interval
from mara_ray.evaluation.tables import BOUNDS
from mara_ray.seeding import generator

# What is shown, in which unit, and the factor from the row's unit to it.
MEASURES = {
    "full_queue_fraction": ("steps with a full queue, %", 100.0),
    "waiting_tasks": ("tasks waiting, mean", 1.0),
    "readiness_delay": ("steps until ready for a forecast", 1.0),
    "switches": ("task switches per episode", 1.0),
    "wasted_service": ("service given to unfinished tasks, %", 100.0),
    "utilisation": ("node-steps used, %", 100.0),
}
KEYS = ["training_seed", "root", "episode"]


def diagnose(rows: pd.DataFrame, load: float, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Means over episodes, the sets weighted equally, with the two-way bootstrap of the completion rates.

    Args:
        rows: per-episode rows (see `metrics.episode_rows`).
        load: the arrival rate to look at.
        resamples: of the bootstrap.
        seed: root of the resampling.

    Returns:
        For each method and measure {"mean": ..., "ci": [low, high]}, in the units of `MEASURES`.
    """
    rows = rows[(rows["load"] == load) & ~rows["method"].isin(BOUNDS)]
    methods = list(dict.fromkeys(rows["method"]))
    shapes = {
        str(name): (part["root"].nunique(), part["episode"].nunique()) for name, part in rows.groupby("set")
    }
    num_seeds = int(rows.groupby("method")["training_seed"].nunique().max())
    draws = draw_resampling(num_seeds, shapes, resamples, generator(seed, "diagnostics", str(load)))
    table: dict[str, dict[str, Any]] = {}
    for method in methods:
        of_method = rows[rows["method"] == method].sort_values(KEYS)
        table[str(method)] = {}
        for measure, (_, factor) in MEASURES.items():
            levels, replicates = [], []
            for name, part in of_method.groupby("set"):
                value_SRE = part[measure].to_numpy(np.float64).reshape(-1, *shapes[str(name)])
                outcomes = Outcomes(value_SRE * factor / 100.0, np.ones(shapes[str(name)]))
                levels.append(outcomes.completion)
                replicates.append(draws.replicates(str(name), outcomes))
            ends = interval(np.mean(replicates, axis=0))
            table[str(method)][measure] = {"mean": float(np.mean(levels)), "ci": list(ends)}
    return table
