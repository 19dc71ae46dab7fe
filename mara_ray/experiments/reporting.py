"""What a run ends in: summary.json and report.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from mara_ray.artifacts import hash_of, read_json, write_json
from mara_ray.config import RunConfig
from mara_ray.errors import UserError
from mara_ray.evaluation.diagnostics import diagnose
from mara_ray.evaluation.report import Provenance, write_report
from mara_ray.evaluation.run_results import CONFIG, SUMMARY, RunResults, SweepResults
from mara_ray.evaluation.tables import summarise
from mara_ray.experiments.pictures import run_pictures
from mara_ray.experiments.run import Run
from mara_ray.progress import Report
from mara_ray.provenance import versions


def finished_run(directory: Path) -> Run:
    """The run that a directory holds.

    Raises:
        UserError: it holds none, its configuration is another version's, or it is not evaluated yet.
    """
    directory = directory.absolute()
    if not (directory / CONFIG).is_file():
        raise UserError(f"run: {directory} holds no run; name the directory of one, as runs/quick")
    try:
        run = Run(RunConfig.model_validate(read_json(directory / CONFIG)), directory)
    except ValidationError as error:
        raise UserError(f"file: {directory / CONFIG} is not of this version; run `mara run` again") from error
    if "evaluation" not in run.records():
        raise UserError(f"run: {directory} is not evaluated yet; let `mara run` end first")
    return run


def write_summary_and_report(run: Run, report: Report, sweeps: Sequence[SweepResults] = ()) -> dict[str, Any]:
    """Summarise the rows, draw the pictures and write both files; `sweeps` are shown beside the run."""
    config, steps = run.config, 3
    rows = pd.read_parquet(run.folder("evaluation") / "episodes.parquet")
    loads, resamples = config.evaluation.loads, config.evaluation.bootstrap_resamples
    summaries = {
        f"{load:g}": summarise(rows, load, _hashes(run), resamples, config.seed)
        | diagnose(rows, load, resamples, config.seed)
        for load in loads
    }
    summary = next(iter(summaries.values()))
    write_json(run.directory / SUMMARY, {**summary, "loads": summaries} if len(loads) > 1 else summary)
    report(1, steps, "summary")
    results = RunResults.read(run.directory)
    pictures = run_pictures(run, results, sweeps)
    report(2, steps, "pictures")
    write_report(
        run.directory / "report.html",
        title=f"mara_ray: run {config.name!r}",
        results=results,
        sweeps=sweeps,
        pictures=pictures,
        provenance=Provenance(versions(), config.seed, config.model_dump(mode="json")),
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
