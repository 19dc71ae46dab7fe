"""How the methods differ in operation: queues, waiting, switching, waste; means with 95 % intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from mara_ray.evaluation.stats import Outcomes, draw_resampling, interval
from mara_ray.evaluation.tables import BOUNDS, CHAMPION
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
        "diagnostics": for each method and measure {"mean": ..., "ci": [low, high]}, in the units of
        `MEASURES`; "diagnostic_differences": the same of the champion minus every other method, paired, as
        "mara-lara".
    """
    rows = rows[(rows["load"] == load) & ~rows["method"].isin(BOUNDS)]
    methods = [str(name) for name in dict.fromkeys(rows["method"])]
    shapes = {
        str(name): (part["root"].nunique(), part["episode"].nunique()) for name, part in rows.groupby("set")
    }
    num_seeds = int(rows.groupby("method")["training_seed"].nunique().max())
    draws = draw_resampling(num_seeds, shapes, resamples, generator(seed, "diagnostics", str(load)))
    found: dict[str, dict[str, tuple[float, np.ndarray]]] = {}  # the mean and its replicates (Z,)
    for method in methods:
        of_method = rows[rows["method"] == method].sort_values(KEYS)
        found[method] = {}
        for measure, (_, factor) in MEASURES.items():
            levels, replicates = [], []
            for name, part in of_method.groupby("set"):
                value_SRE = part[measure].to_numpy(np.float64).reshape(-1, *shapes[str(name)])
                outcomes = Outcomes(value_SRE * factor / 100.0, np.ones(shapes[str(name)]))
                levels.append(outcomes.completion)
                replicates.append(draws.replicates(str(name), outcomes))
            found[method][measure] = float(np.mean(levels)), np.mean(replicates, axis=0)
    others = [name for name in methods if name != CHAMPION] if CHAMPION in methods else []
    return {
        "diagnostics": {
            method: {m: _with_interval(*value) for m, value in by_measure.items()}
            for method, by_measure in found.items()
        },
        "diagnostic_differences": {
            f"{CHAMPION}-{other}": {
                m: _with_interval(mean - found[other][m][0], mean_Z - found[other][m][1])
                for m, (mean, mean_Z) in found[CHAMPION].items()
            }
            for other in others
        },
    }


def _with_interval(mean: float, mean_Z: np.ndarray) -> dict[str, Any]:
    return {"mean": mean, "ci": list(interval(mean_Z))}
