"""The paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mara_ray.evaluation.diagnostics import MEASURES
from mara_ray.evaluation.findings import MINUS
from mara_ray.evaluation.paper import BASE_LOAD, PAPER, PaperFigure
from mara_ray.evaluation.result_tables import Cell, ResultTable, Row, brackets, pair_label
from mara_ray.evaluation.run_results import RunResults, SweepResults
from mara_ray.evaluation.tables import MEAN, label

Ours = tuple[float, Sequence[float]]  # the number and the ends of its interval
STRESS = "stress"  # the workload, as `mara play` calls it
IN_SUMMARY: dict[str, tuple[str, str]] = {
    "level": ("methods", "completion"),
    "difference": ("differences", "points"),
    "operation": ("diagnostic_differences", "mean"),
}
NOTE = (
    "Ours comes from other tasks, small networks on data that ship, so levels need not agree; what methods"
    " gain over one another is what to compare. At p = 0.04 if nothing else is said. Brackets hold 95 %"
    " intervals."
)


def paper_tables(run: RunResults, sweeps: Sequence[SweepResults] = ()) -> list[ResultTable]:
    """A table for each of the paper's groups that the run, or a sweep of stress tests, answers."""
    stress = {
        lead["method"]: lead
        for sweep in sweeps
        for lead in sweep.leads
        if lead.get("workload") == STRESS and lead["set"] == MEAN
    }
    tables = []
    for title, figures in PAPER.items():
        found = [(figure, ours(figure, run, stress)) for figure in figures]
        if any(value is not None for _, value in found):
            rows = [_row(figure, value) for figure, value in found]
            head = [title, "paper", "ours", "where in the paper"]
            tables.append(ResultTable(title, head, rows))
    return tables


def ours(figure: PaperFigure, run: RunResults, stress: Mapping[str, Mapping[str, Any]]) -> Ours | None:
    """Our answer to a number of the paper, in its unit; None if there is none.

    Args:
        figure: the number.
        run: where to look.
        stress: by method its completion in the stress test, as a row of leads.
    """
    name, where = figure.name, figure.where
    try:
        if figure.kind == "stress":
            return stress[name]["completion"], (stress[name]["low"], stress[name]["high"])
        if figure.kind in ("error", "success"):
            versus = run.predictors["versus_wls"][name][where]
            if figure.kind == "success":
                return versus["success_gain_points"], versus["success_ci"]
            low, high = versus["ci"]
            return -versus["mae_reduction_percent"], (-high, -low)
        group, key = IN_SUMMARY[figure.kind]
        cell = run.loads[figure.load][group][name][where]
        return cell[key], cell["ci"]
    except KeyError:
        return None


def _row(figure: PaperFigure, found: Ours | None) -> Row:
    form = {"level": ".1f", "stress": ".1f", "operation": "+.2f"}.get(figure.kind, "+.1f")
    sign = "+" if form.startswith("+") else ""
    paper = _number(figure.value, f"{sign}g")
    if figure.upto is not None:
        paper += f" to {_number(figure.upto, f'{sign}g')}"
    if found is None:
        cell = Cell("not run")
    else:
        value, ends = found
        cell = Cell(_number(value, form), brackets(ends, form))
    return Row(_what(figure), [Cell(paper), cell, Cell(figure.place, prose=True)])


def _number(value: float, form: str) -> str:
    return f"{value:{form}}".replace("-", MINUS)


def _what(figure: PaperFigure) -> str:
    """The figure in words, with its unit."""
    if figure.kind == "operation":
        return f"{MEASURES[figure.where][0]}, {pair_label(figure.name)}"
    if figure.kind in ("error", "success"):
        change = "capped error against WLS, %" if figure.kind == "error" else "right on success, points"
        return f"{label(figure.where)}: {change}"
    name = pair_label(figure.name) + ", points" if figure.kind == "difference" else f"{label(figure.name)}, %"
    if figure.kind == "stress":
        return name
    load = "" if figure.load == BASE_LOAD else f", p = {figure.load}"
    return name + ("" if figure.where == MEAN else f", {label(figure.where)}") + load


def forecasts_beside_paper(evaluation: Mapping[str, Any]) -> ResultTable:
    """The paper's numbers on forecasts beside flow matching and the quantile GRU.

    Args:
        evaluation: see `predictor.evaluate.evaluate_predictors`.
    """
    run = RunResults({}, evaluation, {})
    names = [name for name in ("fm", "quantile") if name in evaluation["versus_wls"]]
    rows = []
    for figure in PAPER["Forecasts"]:
        beside = [_row(figure, ours(replace(figure, name=name), run, {})) for name in names]
        paper, ours_, _ = beside[0].cells
        rows.append(Row(beside[0].name, [paper, ours_, *(row.cells[1] for row in beside[1:])]))
    return ResultTable("Forecasts", ["set", "paper", *map(label, names)], rows)
