"""The summary (the JSON of `mara evaluate`) from per-episode rows, and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

from mara_ray.errors import UserError
from mara_ray.evaluation.stats import (
    Outcomes,
    Resampling,
    draw_resampling,
    holm,
    interval,
    sign_flip_p,
    unit_differences,
)
from mara_ray.seeding import generator

MEAN = "mean"  # the sets averaged with equal weight
BOUNDS = ("independent", "clairvoyant", "oracle_online")
REFERENCE, CHAMPION, OPTIMUM = "lara", "mara", "clairvoyant"  # the gap is from the reference to the optimum
ABLATIONS = (("lara_fm", "lara"), ("mara_wls", "lara"))  # compared beside the champion with every method
LABELS = {
    "mara": "MARA",
    "mara_wls": "MARA-WLS",
    "mara_sparse": "MARA-sparse",
    "planner": "planner",
    "laira": "LaiRA",
    "lara_fm": "LARA-FM",
    "lara": "LARA",
    "lara_fixed": "LARA, exploring all first",
    "lara_fm_fixed": "LARA-FM, exploring all first",
    "srpt": "SRPT",
    "llf": "LLF",
    "edf": "EDF",
    "fifo": "FIFO",
    "random": "random",
    "independent": "independent feasibility",
    "clairvoyant": "clairvoyant optimum",
    "oracle_online": "oracle demand, online",
    "fm": "flow matching",
    "wls": "WLS",
    "power": "power law",
    "quantile": "quantile GRU",
    "hazard": "nearest curves",
    "fm_prior": "flow matching, prior first",
    "oracle": "oracle",
    "id": "ID",
    "rl": "RL-OOD",
    "vit": "ViT-OOD",
    MEAN: "mean",
}


def in_order(names: Iterable[str]) -> list[str]:
    """Methods, levels or sets in the order that they are shown in; a sorted JSON file has lost it."""
    places = {name: place for place, name in enumerate(LABELS)}
    return sorted(names, key=lambda name: places.get(name, len(places)))


def label(name: str) -> str:
    """The name people read."""
    return LABELS.get(name, name)


def summarise(
    rows: pd.DataFrame, load: float, hashes: Mapping[str, str], resamples: int, seed: int
) -> dict[str, Any]:
    """The summary of one load, in the fixed form of `mara evaluate --json`.

    Args:
        rows: per-episode rows (see `metrics.episode_rows`) of methods and bounds on the same episodes.
        load: the arrival rate to summarise.
        hashes: what the numbers were made from.
        resamples: of the bootstrap.
        seed: root of the resampling.

    Raises:
        UserError: no rows of this load, or methods that did not meet the same episodes.
    """
    outcomes = outcomes_of(rows[rows["load"] == load], load)
    num_seeds, shapes = _extent(outcomes)
    levels = levels_of(outcomes, resamples, generator(seed, "bootstrap", str(load)))
    methods = [name for name in outcomes if name not in BOUNDS]
    return {
        "load": load,
        "episodes": {name: int(np.prod(shape)) for name, shape in shapes.items()}
        | {"roots": int(next(iter(shapes.values()))[0]), "training_seeds": num_seeds},
        "methods": {name: _levels_json(levels[name]) for name in methods},
        "differences": _differences(outcomes, levels, methods, seed),
        "bounds": {name: _levels_json(levels[name]) for name in BOUNDS if name in levels},
        **_gap_closed(levels, methods),
        "hashes": dict(hashes),
    }


Levels = dict[str, tuple[float, np.ndarray]]  # set -> (completion in percent, its replicates (Z,))


def outcomes_of(rows: pd.DataFrame, load: float) -> dict[str, dict[str, Outcomes]]:
    """Outcomes by method and set from per-episode rows of one load.

    Raises:
        UserError: there are no rows, or methods did not meet the same episodes.
    """
    if rows.empty:
        raise UserError(f"load: {load} was not evaluated; add it to evaluation.loads and evaluate again")
    outcomes: dict[str, dict[str, Outcomes]] = {}
    tasks: dict[str, np.ndarray] = {}
    keys = ["training_seed", "root", "episode"]
    for (method, set_name), part in rows.groupby(["method", "set"], sort=False):
        part = part.sort_values(keys)
        shape = tuple(part[key].nunique() for key in keys)
        if len(part) != np.prod(shape):
            raise UserError(f"{method} on {set_name}: episodes are missing or double; evaluate again")
        completed_SRE = part["completed"].to_numpy(np.float64).reshape(shape)
        tasks_SRE = part["tasks"].to_numpy(np.float64).reshape(shape)
        if not np.array_equal(tasks_SRE[0], tasks.setdefault(str(set_name), tasks_SRE[0])):
            raise UserError(f"{method} on {set_name}: met other episodes than the rest; evaluate again")
        outcomes.setdefault(str(method), {})[str(set_name)] = Outcomes(completed_SRE, tasks_SRE[0])
    for method, by_set in outcomes.items():
        if set(by_set) != set(tasks):
            raise UserError(f"{method}: was not evaluated on every set; evaluate again")
    return {
        method: {name: outcomes[method][name] for name in in_order(tasks)} for method in in_order(outcomes)
    }


def levels_of(
    outcomes: Mapping[str, Mapping[str, Outcomes]], resamples: int, rng: np.random.Generator
) -> dict[str, Levels]:
    """Completion of every method on every set, and their mean, with replicates of one set of draws."""
    draws = draw_resampling(*_extent(outcomes), resamples, rng)
    return {name: _with_mean(by_set, draws) for name, by_set in outcomes.items()}


def _extent(
    outcomes: Mapping[str, Mapping[str, Outcomes]],
) -> tuple[int, dict[str, tuple[int, int]]]:
    """Training seeds, and for each set its roots and episodes."""
    num_seeds = max(len(o.completed_SRE) for by_set in outcomes.values() for o in by_set.values())
    return num_seeds, {name: o.tasks_RE.shape for name, o in next(iter(outcomes.values())).items()}


def _with_mean(by_set: Mapping[str, Outcomes], draws: Resampling) -> Levels:
    levels = {name: (o.completion, draws.replicates(name, o)) for name, o in by_set.items()}
    mean = float(np.mean([level for level, _ in levels.values()]))
    return levels | {MEAN: (mean, np.mean([replicates for _, replicates in levels.values()], axis=0))}


def _levels_json(levels: Levels) -> dict[str, Any]:
    return {
        name: {"completion": round(level, 3), "ci": _rounded(interval(replicates_Z))}
        for name, (level, replicates_Z) in levels.items()
    }


def _differences(
    outcomes: Mapping[str, Mapping[str, Outcomes]],
    levels: Mapping[str, Levels],
    methods: Sequence[str],
    seed: int,
) -> dict[str, Any]:
    pairs = [(CHAMPION, other) for other in methods if other != CHAMPION] + list(ABLATIONS)
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for first, second in pairs:
        if first not in methods or second not in methods:
            continue
        units = {
            name: unit_differences(outcomes[first][name], outcomes[second][name]) for name in outcomes[first]
        }
        units[MEAN] = np.concatenate(list(units.values())) / len(units)
        pair = f"{first}-{second}"
        table[pair] = {}
        for name, difference_E in units.items():
            (level, replicates_Z), (other, other_Z) = levels[first][name], levels[second][name]
            table[pair][name] = {
                "points": round(level - other, 3),
                "ci": _rounded(interval(replicates_Z - other_Z)),
                "p": sign_flip_p(difference_E, generator(seed, "sign-flip", pair, name)),
            }
    corrected = holm(
        {(pair, name): cell["p"] for pair, cells in table.items() for name, cell in cells.items()}
    )
    for (pair, name), p in corrected.items():
        table[pair][name] |= {"p": round(table[pair][name]["p"], 5), "p_holm": round(p, 5)}
    return table


def _gap_closed(levels: Mapping[str, Levels], methods: Sequence[str]) -> dict[str, Any]:
    """The share of the gap from LARA to the clairvoyant optimum that each method closes, and its interval."""
    shares: dict[str, dict[str, float]] = {}
    intervals: dict[str, dict[str, list[float]]] = {}
    if REFERENCE not in levels or OPTIMUM not in levels:
        return {"gap_closed": shares, "gap_closed_ci": intervals}
    for method in (name for name in methods if name != REFERENCE):
        shares[method], intervals[method] = {}, {}
        for name, (level, replicates_Z) in levels[method].items():
            (low, low_Z), (high, high_Z) = levels[REFERENCE][name], levels[OPTIMUM][name]
            if high > low:
                gap_Z = np.maximum(high_Z - low_Z, 1e-9)
                shares[method][name] = round((level - low) / (high - low), 4)
                intervals[method][name] = _rounded(interval((replicates_Z - low_Z) / gap_Z))
    return {"gap_closed": shares, "gap_closed_ci": intervals}


def _rounded(bounds: tuple[float, float]) -> list[float]:
    return [round(bound, 3) for bound in bounds]


def completion_table(summary: Mapping[str, Any]) -> Table:
    """The summary for a terminal: completion in percent with its 95 % interval."""
    groups = [summary["methods"], summary["bounds"]]
    sets = in_order(next(iter(groups[0].values())))
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=f"Tasks finished on time, in % (load p = {summary['load']:g})",
        caption=_caption(summary),
    )
    table.add_column("method")
    for name in sets:
        table.add_column(label(name), justify="right", no_wrap=True)
    if CHAMPION in summary["methods"]:
        table.add_column(f"{label(CHAMPION)}'s lead", justify="right", no_wrap=True)
    for number, group in enumerate(groups):
        for method in in_order(group):
            cells = [cell(f"{group[method][s]['completion']:.1f}", group[method][s]["ci"]) for s in sets]
            lead = summary["differences"].get(f"{CHAMPION}-{method}", {}).get(MEAN)
            if lead:
                cells.append(cell(f"{lead['points']:+.1f}", lead["ci"]))
            table.add_row(label(method), *cells, style="dim" if number else "")
        table.add_section()
    return table


def cell(value: str, bounds: Sequence[float]) -> Text:
    """A value over its interval."""
    return Text(value) + Text(f"\n[{bounds[0]:.1f},{bounds[1]:.1f}]", style="dim")


def _caption(summary: Mapping[str, Any]) -> str:
    episodes = summary["episodes"]
    counts = ", ".join(f"{episodes[name]} {label(name)}" for name in LABELS if name in episodes)
    return (
        f"95 % intervals: bootstrap over {episodes['training_seeds']} training seed(s) x {episodes['roots']}"
        f" workload roots; {counts} episodes, the same for every method"
    )


def predictor_scores(
    evaluation: Mapping[str, Any],
) -> Iterator[tuple[str, str, Mapping[str, float], Mapping[str, Any] | None]]:
    """Predictor, set, scores and the comparison with WLS, if any; the oracle, always right, left out."""
    for name in in_order(evaluation["predictors"]):
        for set_name in in_order(evaluation["predictors"][name]) if name != "oracle" else ():
            versus = evaluation["versus_wls"].get(name, {}).get(set_name)
            yield name, set_name, evaluation["predictors"][name][set_name], versus


def predictor_table(evaluation: Mapping[str, Any]) -> Table:
    """The comparison of predictors (`mara predictor evaluate`) for a terminal."""
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Forecasts of demand on test curves, in steps"
    )
    table.add_column("predictor")
    table.add_column("set")
    for heading in ("capped MAE", "success, %", "CRPS", "90 % covers, %", "MAE saved, %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, set_name, scores, versus in predictor_scores(evaluation):
        table.add_row(
            label(name),
            label(set_name),
            f"{scores['capped_mae']:.1f}",
            f"{100 * scores['success_accuracy']:.1f}",
            f"{scores['crps']:.1f}",
            f"{100 * scores['coverage_90']:.1f}",
            cell(f"{versus['mae_reduction_percent']:.1f}", versus["ci"]) if versus else Text(""),
        )
    return table
