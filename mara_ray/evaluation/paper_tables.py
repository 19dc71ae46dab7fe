"""The paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mara_ray.evaluation.diagnostics import MEASURES
from mara_ray.evaluation.findings import MINUS
from mara_ray.evaluation.paper import PAPER, Kind, PaperFigure
from mara_ray.evaluation.result_tables import Cell, ResultTable, Row, brackets, pair_label
from mara_ray.evaluation.run_results import RunResults
from mara_ray.evaluation.tables import MEAN, label

Ours = tuple[float, Sequence[float] | None]  # the number and the ends of its interval, if it has one
NOTE = (
    "Ours comes from other tasks, small networks on data that ship, so levels need not agree; what methods"
    " gain over one another is what to compare. Brackets hold 95 % intervals."
)


def paper_tables(results: RunResults) -> list[ResultTable]:
    """A table for each of the paper's groups of which the run has something."""
    tables = []
    for title, figures in PAPER.items():
        found = [(figure, ours(figure, results)) for figure in figures]
        if any(value is not None for _, value in found):
            rows = [_row(figure, value) for figure, value in found]
            head = [title, "paper", "ours", "where in the paper"]
            tables.append(ResultTable(title, head, rows))
    return tables


def ours(figure: PaperFigure, results: RunResults) -> Ours | None:
    """Our answer to a number of the paper, in its unit; None if the run has none."""
    try:
        return LOOK_UP[figure.kind](figure, results)
    except KeyError:
        return None


def _level(figure: PaperFigure, results: RunResults) -> Ours:
    cell = results.loads[figure.load]["methods"][figure.name][figure.where]
    return cell["completion"], cell["ci"]


def _difference(figure: PaperFigure, results: RunResults) -> Ours:
    cell = results.loads[figure.load]["differences"][figure.name][figure.where]
    return cell["points"], cell["ci"]


def _operation(figure: PaperFigure, results: RunResults) -> Ours:
    cell = results.loads[figure.load]["diagnostic_differences"][figure.name][figure.where]
    return cell["mean"], cell["ci"]


def _error(figure: PaperFigure, results: RunResults) -> Ours:
    versus = results.predictors["versus_wls"][figure.name][figure.where]
    low, high = versus["ci"]
    return -versus["mae_reduction_percent"], (-high, -low)


def _success(figure: PaperFigure, results: RunResults) -> Ours:
    versus = results.predictors["versus_wls"][figure.name][figure.where]
    return versus["success_gain_points"], versus["success_ci"]


def _stress(figure: PaperFigure, results: RunResults) -> Ours | None:
    if results.stress is None:
        return None
    played: Mapping[str, Any] = results.stress[figure.name]
    return 100 * played["completed"] / played["tasks"], None


LOOK_UP: dict[Kind, Callable[[PaperFigure, RunResults], Ours | None]] = {
    "level": _level,
    "difference": _difference,
    "operation": _operation,
    "error": _error,
    "success": _success,
    "stress": _stress,
}


def _row(figure: PaperFigure, found: Ours | None) -> Row:
    form = ".1f" if figure.kind in ("level", "stress") else "+.1f"
    decimals = "+.2f" if form.startswith("+") else ".2f"
    paper = _number(figure.value, decimals)
    if figure.upto is not None:
        paper += f" to {_number(figure.upto, decimals)}"
    if found is None:
        cell = Cell("not run")
    else:
        value, ends = found
        cell = Cell(_number(value, form), brackets(ends, form) if ends is not None else "")
    return Row(_what(figure), [Cell(paper), cell, Cell(figure.place)])


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
    load = f" at p = {figure.load}"
    return name + ("" if figure.where == MEAN else f", {label(figure.where)}") + load
