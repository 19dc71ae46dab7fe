"""What a run ends in: summary.json and report.html."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from mara_ray.artifacts import hash_of, read_json, write_json
from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.curve_plots import Fan, forecast_fans, sample_curves
from mara_ray.evaluation.diagnostics import diagnose
from mara_ray.evaluation.forecast_plots import error_by_prefix, reliability
from mara_ray.evaluation.gantt import gantt
from mara_ray.evaluation.plots import Picture, completion_bars, learning_curves
from mara_ray.evaluation.report import Provenance, write_report
from mara_ray.evaluation.tables import CHAMPION, REFERENCE, label, summarise
from mara_ray.experiments.comparison import Arena, all_cells, policy_metrics, workload_path
from mara_ray.experiments.pipeline import Run
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.progress import Report
from mara_ray.provenance import versions
from mara_ray.workload.episodes import Workload

NUM_FANS = 6
FAN_SHARE = 8  # a fan shows the forecast after an eighth of the curve
FAN_FRACTION = 0.9  # of the log-drop: the target of a fan
LEARNING_COLUMNS = {
    "validation_completion": "completion on validation episodes, %",
    "team_return": "team return per training episode",
    "entropy": "entropy of a node's choice",
}


def write_summary_and_report(run: Run, report: Report) -> dict[str, Any]:
    """Summarise the rows, draw the pictures and write both files."""
    config, steps = run.config, 3
    rows = pd.read_parquet(run.folder("evaluation") / "episodes.parquet")
    loads, resamples = config.evaluation.loads, config.evaluation.bootstrap_resamples
    summaries = {
        f"{load:g}": summarise(rows, load, _hashes(run), resamples, config.seed)
        | {"diagnostics": diagnose(rows, load, resamples, config.seed)}
        for load in loads
    }
    summary = next(iter(summaries.values()))
    write_json(run.directory / "summary.json", {**summary, "loads": summaries} if len(loads) > 1 else summary)
    report(1, steps, "summary")
    pictures = _pictures(run, summary)
    report(2, steps, "pictures")
    write_report(
        run.directory / "report.html",
        title=f"mara_ray: run {config.name!r}",
        summary=summary,
        predictors=read_json(run.folder("forecasts") / "evaluation.json"),
        pictures=pictures,
        provenance=_provenance(run),
    )
    report(3, steps, "report")
    return {
        f"completion/{method}/{name}": cell["completion"]
        for method, by_set in summary["methods"].items()
        for name, cell in by_set.items()
    }


def _hashes(run: Run) -> dict[str, str]:
    outputs = {name: record["outputs"] for name, record in run.records().items()}
    stages = {"bank": "curves", "predictor": "predictor", "allocator": "allocator", "workloads": "workloads"}
    return {name: hash_of(outputs[stage]) for name, stage in stages.items()}


def _provenance(run: Run) -> Provenance:
    seconds = {name: record["wall_s"] for name, record in run.records().items() if name != "report"}
    return Provenance(versions(), run.config.seed, run.config.model_dump(mode="json"), seconds)


def _pictures(run: Run, summary: dict[str, Any]) -> list[Picture]:
    arena = Arena.load(run)
    pictures = [completion_bars(summary)]
    if picture := _episode(run, arena):
        pictures.append(picture)
    pictures += [sample_curves(arena.bank), forecast_fans(_fans(run, arena.bank))]
    predictors = read_json(run.folder("forecasts") / "evaluation.json")
    pictures += [error_by_prefix(predictors), reliability(predictors)]
    histories = {
        name: pd.read_json(path, lines=True) for name, path in policy_metrics(run).items() if path.is_file()
    }
    return [*pictures, learning_curves(histories, LEARNING_COLUMNS)]


def _episode(run: Run, arena: Arena) -> Picture | None:
    """The first episode of the first cell under the champion and the reference, if both were compared."""
    methods = [name for name in (CHAMPION, REFERENCE) if name in run.config.evaluation.methods]
    if len(methods) < 2:
        return None
    cell = all_cells(run.config)[0]
    workload = Workload.load(workload_path(run, cell)).take(slice(0, 1))
    rollouts = {name: next(arena.play(name, workload))[1] for name in methods}
    where = f"the first episode of the first workload root ({label(cell.set_name)}, load p = {cell.load:g})"
    return gantt(rollouts, 0, where)


def _fans(run: Run, bank: CurveBank) -> list[Fan]:
    """Forecasts for test curves of different configurations, the first of each in turn."""
    predictor = FlowPredictor.load(run.folder("predictor"))
    test_rows = np.flatnonzero(bank.accepted & (bank.split == "test"))
    numbers = pd.Series(bank.configuration[test_rows]).groupby(bank.configuration[test_rows]).cumcount()
    chosen = test_rows[np.argsort(numbers.to_numpy(), kind="stable")][:NUM_FANS]
    num_seen = max(bank.length_points // FAN_SHARE, predictor.shape.warmup_points)
    target_F = bank.target_losses((FAN_FRACTION,))[chosen, 0]
    means_FNH = predictor.futures(bank.ema_CL, chosen, np.full(len(chosen), num_seen), target_F)
    return [
        Fan(
            str(bank.curve_id[row]),
            bank.ema_CL[row],
            num_seen,
            means_NH,
            target=float(target),
            last_bin_ratio=predictor.shape.last_bin_ratio,
        )
        for row, means_NH, target in zip(chosen, means_FNH, target_F, strict=True)
    ]
