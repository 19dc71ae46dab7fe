"""Run a grid of runs: a Tune trial for each cell, stages shared, and one tidy table of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import ray
from ray import tune

from mara_ray import __version__
from mara_ray.artifacts import hash_of, read_json, written_whole
from mara_ray.evaluation.tables import predictor_scores
from mara_ray.experiments.checks import check_config
from mara_ray.experiments.cluster import connect
from mara_ray.experiments.grid import Cell, Grid, cells_of
from mara_ray.experiments.locks import locked
from mara_ray.experiments.membership import Membership
from mara_ray.experiments.pipeline import is_done, run_stages, stage_inputs
from mara_ray.experiments.planning import TRIAL_BYTES, Plan, check_plan, cluster_limits, plan_of, stages_of
from mara_ray.experiments.playing import check_source
from mara_ray.experiments.run import Run
from mara_ray.experiments.trials import run_trials
from mara_ray.progress import Report
from mara_ray.results import RESULTS_FILE

MAX_TRIALS = 16  # at a time: they only wait for their tasks


@dataclass(frozen=True)
class Sweep:
    """A grid, its cells, and where they are run.

    Attributes:
        grid: as in the file.
        cells: whole configurations.
        directory: where to.
        shared: the folder of stages, which other sweeps may use, too.
    """

    grid: Grid
    cells: tuple[Cell, ...]
    directory: Path
    shared: Path

    @classmethod
    def of(cls, grid: Grid, overrides: list[str], directory: Path, shared: Path | None) -> Sweep:
        """Read the cells, and refuse at once what would only fail hours later.

        Raises:
            UserError: a bad value, or what `check_config` refuses.
        """
        cells = tuple(cells_of(grid, overrides))
        for cell in cells:
            check_config(cell.config)
        for source in grid.plays:
            check_source(source)
        directory = directory.absolute()
        return cls(grid, cells, directory, (shared or directory / "stages").absolute())

    @cached_property
    def plan(self) -> Plan:
        """What there is to do."""
        return plan_of(self.grid, self.cells, self.shared)

    def run_of(self, cell: Cell, groups: Mapping[str, str]) -> Run:
        """The run of a cell."""
        folder = self.directory / "cells" / cell.name
        tracking, name = self.directory / "tracking", self.grid.name
        membership = Membership(name, cell.name, self.shared, tracking, groups, cell.factors)
        return Run(cell.config, folder, membership)


def preflight(sweep: Sweep) -> dict[str, float]:
    """Connect to Ray, and refuse a plan that cannot be placed there.

    Returns:
        What the cluster has.

    Raises:
        UserError: a stage needs more than there is.
        MachineError: there is no Ray.
    """
    connect(sweep.cells[0].config.cluster)
    limits = cluster_limits()
    check_plan(sweep.plan, limits)
    return limits


def run_sweep(sweep: Sweep, report: Report) -> pd.DataFrame:
    """Run what is not done yet, and write `results.parquet`.

    Returns:
        The rows; see `mara_ray.load_results`.

    Raises:
        UserError: the plan cannot be placed, or another sweep is at work in the directory.
        MachineError: a trial failed; the finished ones stay.
    """
    with locked(sweep.directory / ".lock"):
        preflight(sweep)
        trials = [
            {
                "name": cell.name,
                "factors": dict(cell.factors),
                "config": hash_of(
                    cell.config.model_dump(mode="json"),
                    sweep.grid.kind,
                    sweep.plan.keys[cell.name],  # the bytes of what comes from files, too
                    str(sweep.shared),
                    __version__,
                ),
            }
            for cell in sweep.cells
        ]
        groups = {cell.name: sweep.plan.groups(cell.name) for cell in sweep.cells}
        runs = {cell.name: sweep.run_of(cell, groups[cell.name]) for cell in sweep.cells}
        run_trials(
            _run_cell,
            {"sweep": sweep, "groups": groups},
            trials,
            sweep.directory / "trials",
            sweep.grid.name,
            report,
            tune.PlacementGroupFactory([{"CPU": 0, "memory": TRIAL_BYTES}]),
            min(MAX_TRIALS, max(2, int(ray.cluster_resources().get("CPU", 1)))),
            lambda name: _has_rows(runs[name], sweep.grid),
        )
        parts = [
            _with_factors(rows_of(runs[cell.name], sweep.grid), sweep.grid, cell) for cell in sweep.cells
        ]
        rows = pd.concat(parts, ignore_index=True)
        rows.attrs = {
            "sweep": sweep.grid.name,
            "about": sweep.grid.about,
            "kind": sweep.grid.kind,
            "axes": list(sweep.grid.axes),
            "resamples": sweep.cells[0].config.evaluation.bootstrap_resamples,
            "seed": sweep.cells[0].config.seed,
            "made_from": {name: _hashes(run) for name, run in runs.items()},
        }
        with written_whole(sweep.directory / RESULTS_FILE) as temporary:
            rows.to_parquet(temporary, index=False)
    return rows


def _run_cell(config: dict[str, Any], sweep: Sweep, groups: dict[str, dict[str, str]]) -> None:
    """One trial: the stages of a cell, up to its rows."""
    name = config["trial"]["name"]
    cell = next(cell for cell in sweep.cells if cell.name == name)
    stages, run = stages_of(sweep.grid), sweep.run_of(cell, groups[name])
    run_stages(run, stages, stages[-1].name)
    tune.report(_measures(rows_of(run, sweep.grid), sweep.grid))


def _has_rows(run: Run, grid: Grid) -> bool:
    """Whether what a cell ended in is still there."""
    last = stages_of(grid)[-1]
    records = run.records()
    return all(need in records for need in last.needs) and is_done(run, last, stage_inputs(run, last))


def rows_of(run: Run, grid: Grid) -> pd.DataFrame:
    """What a cell ends in."""
    folder = run.folder(grid.kind)
    if grid.kind != "forecasts":
        return pd.read_parquet(folder / "episodes.parquet")
    return pd.DataFrame(
        [
            {"predictor": name, "set": set_name, **scores, **_changes(versus or {})}
            for name, set_name, scores, versus in predictor_scores(read_json(folder / "evaluation.json"))
        ]
    )


def _changes(versus: Mapping[str, Any]) -> dict[str, float]:
    """The change against WLS as columns, the ends of its intervals among them."""
    columns = {name: value for name, value in versus.items() if not name.endswith("ci")}
    for name, interval in (("mae_reduction", "ci"), ("success_gain", "success_ci")):
        if interval in versus:
            columns |= dict(zip((f"{name}_low", f"{name}_high"), versus[interval], strict=True))
    return columns


def _with_factors(rows: pd.DataFrame, grid: Grid, cell: Cell) -> pd.DataFrame:
    head = pd.DataFrame(
        {"sweep": grid.name, "cell": cell.name, **cell.factors}, index=rows.index, dtype=object
    )
    return pd.concat([head.infer_objects(), rows], axis=1)


def _measures(rows: pd.DataFrame, grid: Grid) -> dict[str, float]:
    """A trial's numbers for TensorBoard's table of hyperparameters."""
    if grid.kind == "forecasts":
        return {
            f"capped_mae/{row['predictor']}/{row['set']}": row["capped_mae"] for _, row in rows.iterrows()
        }
    sums = rows.groupby("method")[["completed", "tasks"]].sum()
    shares = 100.0 * sums["completed"] / sums["tasks"]
    return {f"completion/{name}": float(share) for name, share in shares.items()}


def _hashes(run: Run) -> dict[str, str]:
    """What a cell was made from, by stage."""
    return {name: hash_of(record["outputs"]) for name, record in run.records().items()}
