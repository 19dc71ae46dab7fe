"""The tables of README.md and docs/*.md, from the small results that are kept in docs/results.

A part of a page between markers (see `markdown`) names one of `TABLES` and its source, a folder or a JSON
file there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mara_ray.artifacts import read_json, written_whole
from mara_ray.errors import UserError
from mara_ray.evaluation import forecast_tables, result_tables
from mara_ray.evaluation.findings import findings
from mara_ray.evaluation.markdown import fill, to_markdown
from mara_ray.evaluation.paper_tables import NOTE, forecasts_beside_paper, paper_tables
from mara_ray.evaluation.result_tables import ResultTable
from mara_ray.evaluation.run_results import RunResults, SweepResults

RESULTS = Path("docs") / "results"


def _of_run(make: Callable[[RunResults], str]) -> Callable[[Path], str]:
    return lambda source: make(RunResults.read(source))


def _of_json(make: Callable[[Any], ResultTable]) -> Callable[[Path], str]:
    return lambda source: to_markdown(make(read_json(source)), with_note=False)


def _every_load(make: Callable[[Any], ResultTable], run: RunResults) -> str:
    tables = [make(summary) for summary in run.loads.values()]
    return "\n\n".join(f"### {table.title}\n\n{to_markdown(table, False)}" for table in tables)


def _beside_the_paper(run: RunResults, source: Path) -> str:
    """The run's numbers, and those of the stress test if its sweep is kept, too."""
    stress = source.with_name("sweep-stress")
    tables = paper_tables(run, [SweepResults.read(stress)] if stress.is_dir() else [])
    return "\n\n".join([NOTE, *(to_markdown(table) for table in tables)])


def _made_from(run: RunResults) -> str:
    hashes = ", ".join(f"{name} `{value}`" for name, value in run.summary["hashes"].items())
    seconds = ", ".join(f"{name} {record['wall_s']:.0f} s" for name, record in run.stages.items())
    return f"Made from {hashes}. Stages took {seconds}."


TABLES: dict[str, Callable[[Path], str]] = {
    "findings": _of_run(lambda run: "\n".join(f"* {sentence}" for sentence in findings(run.summary))),
    "completion": _of_run(lambda run: to_markdown(result_tables.completion(run.summary), False)),
    "completion-every-load": _of_run(partial(_every_load, result_tables.completion)),
    "loads": _of_run(lambda run: to_markdown(result_tables.by_load(run.loads), False)),
    "differences": _of_run(lambda run: to_markdown(result_tables.differences(run.summary))),
    "differences-by-load": _of_run(lambda run: to_markdown(result_tables.differences_by_load(run.loads))),
    "operation": _of_run(lambda run: to_markdown(result_tables.diagnostics(run.summary))),
    "made-from": _of_run(_made_from),
    "paper": lambda source: _beside_the_paper(RunResults.read(source), source),
    "leads": lambda source: to_markdown(result_tables.leads(SweepResults.read(source))),
    "leads-by-forecast": lambda source: to_markdown(
        result_tables.leads_by_forecast(SweepResults.read(source))
    ),
    "predictors": _of_json(forecast_tables.predictor_means),
    "predictors-paper": _of_json(forecasts_beside_paper),
    "ablation": _of_json(forecast_tables.ablation),
    "early": _of_json(forecast_tables.early_errors),
    "slow": _of_json(forecast_tables.slow_errors),
    "settings-tried": _of_json(forecast_tables.settings_tried),
    "setting-chosen": _of_json(forecast_tables.setting_chosen),
}


def fill_pages(root: Path) -> dict[Path, bool]:
    """Fill the marked parts of the pages of a checkout.

    Returns:
        Whether it changed, for each page that has such parts.

    Raises:
        UserError: this is no checkout, a part names no table, or its source is missing.
    """
    changed = {}
    for page in pages(root):
        before = page.read_text(encoding="utf-8")
        after = filled(root, page)
        if "<!-- results:" in before:
            changed[page] = before != after
        if before != after:
            with written_whole(page) as temporary:
                temporary.write_text(after, encoding="utf-8")
    return changed


def pages(root: Path) -> list[Path]:
    """README.md and docs/*.md.

    Raises:
        UserError: this is no checkout.
    """
    if not (root / "README.md").is_file() or not (root / RESULTS).is_dir():
        raise UserError(f"docs: {root.absolute()} has no README.md or no {RESULTS}; stand in a checkout")
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def filled(root: Path, page: Path) -> str:
    """The text of a page with its parts made anew."""
    return fill(page.read_text(encoding="utf-8"), partial(_made, root / RESULTS), str(page))


def _made(results: Path, table: str, source: str) -> str:
    if table not in TABLES:
        raise UserError(f"results: {table!r} is no table; use one of {', '.join(TABLES)}")
    if not (results / source).exists():
        raise UserError(
            f"results: {results / source} is missing; give `mara docs` the run or sweep of that name"
        )
    return TABLES[table](results / source)
