"""The tables of results, each made once; `report` shows them as HTML and `markdown` as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mara_ray.allocator.methods import method_named
from mara_ray.evaluation.diagnostics import MEASURES
from mara_ray.evaluation.findings import MINUS, established, points
from mara_ray.evaluation.run_results import SweepResults
from mara_ray.evaluation.tables import BOUNDS, CHAMPION, MEAN, OPTIMUM, REFERENCE, in_order, label


@dataclass(frozen=True)
class Cell:
    """One value.

    Attributes:
        value: as it is read.
        interval: its 95 % interval, or nothing.
        claim: it is a difference that may be claimed, see `findings.established`.
        prose: it holds words, not a number.
    """

    value: str = ""
    interval: str = ""
    claim: bool = False
    prose: bool = False


@dataclass(frozen=True)
class Row:
    """A name and its cells; reference levels are told apart from what can be had."""

    name: str
    cells: Sequence[Cell]
    reference: bool = False


@dataclass(frozen=True)
class ResultTable:
    """A table: its heading, the names of its columns (that of the rows' names first) and how to read it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Row]
    note: str = ""


def brackets(bounds: Sequence[float], form: str = ".1f") -> str:
    """An interval as it stands in a cell."""
    return "[" + ", ".join(f"{bound:{form}}" for bound in bounds).replace("-", MINUS) + "]"


def level_cell(cell: Mapping[str, Any]) -> Cell:
    """A completion rate."""
    return Cell(f"{cell['completion']:.1f}", brackets(cell["ci"]))


def difference_cell(cell: Mapping[str, Any]) -> Cell:
    """A difference of completion rates."""
    return Cell(points(cell["points"]), brackets(cell["ci"], "+.1f"), established(cell))


def sets_of(summary: Mapping[str, Any]) -> list[str]:
    """The sets of a summary and their mean."""
    return in_order(next(iter(summary["methods"].values())))


def completion(summary: Mapping[str, Any]) -> ResultTable:
    """Completion of every method and reference level by set, MARA's lead, and the gap closed."""
    sets, with_champion = sets_of(summary), CHAMPION in summary["methods"]
    rows = []
    for group in ("methods", "bounds"):
        for name in in_order(summary[group]):
            cells = [level_cell(summary[group][name][s]) for s in sets]
            if with_champion:
                lead = summary["differences"].get(f"{CHAMPION}-{name}", {}).get(MEAN)
                cells.append(difference_cell(lead) if lead else Cell())
            rows.append(Row(label(name), [*cells, _gap(summary, name)], group == "bounds"))
    leads = [f"{label(CHAMPION)}'s lead, mean"] if with_champion else []
    note = (
        f"Tasks finished on time in %, at load p = {summary['load']:g}, with 95 % intervals."
        f" {_episodes(summary)}. Reference levels use what no scheduler can know. Gap closed: how much of the"
        f" way from {label(REFERENCE)} to the {label(OPTIMUM)}, on the mean."
    )
    head = ["method", *map(label, sets), *leads, "gap closed"]
    return ResultTable(f"Completion at p = {summary['load']:g}", head, rows, note)


def _episodes(summary: Mapping[str, Any]) -> str:
    episodes = summary["episodes"]
    counts = ", ".join(f"{episodes[s]} {label(s)}" for s in sets_of(summary) if s in episodes)
    return (
        f"{counts} episodes from {episodes['roots']} workload roots; {episodes['training_seeds']} training"
        " seed(s) of each learned method"
    )


def _gap(summary: Mapping[str, Any], method: str) -> Cell:
    share = summary["gap_closed"].get(method, {}).get(MEAN)
    if share is None:
        return Cell()
    ends = [100 * end for end in summary["gap_closed_ci"][method][MEAN]]
    return Cell(f"{100 * share:.0f} %".replace("-", MINUS), brackets(ends, ".0f"))


def differences(summary: Mapping[str, Any]) -> ResultTable:
    """Paired differences by set, with the p values of the mean."""
    sets, rows = sets_of(summary), []
    for pair in in_order(summary["differences"]):
        by_set = summary["differences"][pair]
        cells = [difference_cell(by_set[s]) for s in sets]
        cells += [Cell(f"{by_set[MEAN][key]:.4f}") for key in ("p", "p_holm")]
        rows.append(Row(pair_label(pair), cells))
    note = (
        "Points of completion, paired on the same episodes. Bold: the interval leaves out 0 and Holm's p is"
        " under 0.05. The p values shown are those of the mean."
    )
    head = ["difference in points", *map(label, sets), "p", "Holm's p"]
    return ResultTable(f"Differences at p = {summary['load']:g}", head, rows, note)


def pair_label(pair: str) -> str:
    """`mara-lara` as people read it."""
    first, second = pair.split("-")
    return f"{label(first)} {MINUS} {label(second)}"


def by_load(summaries: Mapping[str, Mapping[str, Any]]) -> ResultTable:
    """Mean completion of every method by load, with the gap closed."""
    first = next(iter(summaries.values()))
    rows = []
    for group in ("methods", "bounds"):
        for name in in_order(first[group]):
            cells = [_level_and_gap(summary, group, name) for summary in summaries.values()]
            rows.append(Row(label(name), cells, group == "bounds"))
    note = (
        "Tasks finished on time in %, mean over the sets, with 95 % intervals; then the share of the way from"
        f" {label(REFERENCE)} to the {label(OPTIMUM)}. Everything was trained at p = {first['load']:g} or"
        " thereabouts, see the configuration."
    )
    return ResultTable("Completion by load", ["method", *_loads(summaries)], rows, note)


def _loads(summaries: Iterable[str]) -> list[str]:
    return [f"p = {load}" for load in summaries]


def _level_and_gap(summary: Mapping[str, Any], group: str, name: str) -> Cell:
    cell, gap = level_cell(summary[group][name][MEAN]), _gap(summary, name)
    return Cell(cell.value, f"{cell.interval}; {gap.value}" if gap.value else cell.interval)


def differences_by_load(summaries: Mapping[str, Mapping[str, Any]]) -> ResultTable:
    """Mean differences by load."""
    pairs = in_order(next(iter(summaries.values()))["differences"])
    rows = [
        Row(pair_label(pair), [difference_cell(s["differences"][pair][MEAN]) for s in summaries.values()])
        for pair in pairs
    ]
    note = "Points of completion, mean over the sets; bold as above, with Holm's correction within a load."
    return ResultTable("Differences by load", ["difference in points", *_loads(summaries)], rows, note)


def diagnostics(summary: Mapping[str, Any]) -> ResultTable:
    """How the methods work the pool."""
    found = summary["diagnostics"]
    rows = [Row(label(name), [_measure(found[name][m]) for m in MEASURES]) for name in in_order(found)]
    head = ["method", *(name for name, _ in MEASURES.values())]
    note = f"At p = {summary['load']:g}: means over episodes, sets weighted equally, with 95 % intervals."
    return ResultTable("How the methods work the pool", head, rows, note)


def _measure(found: Mapping[str, Any]) -> Cell:
    return Cell(f"{found['mean']:.1f}", brackets(found["ci"]))


def leads(sweep: SweepResults) -> ResultTable:
    """The lead over LARA of every method in every cell of a sweep, mean over the sets."""
    found = [lead for lead in sweep.leads if lead["set"] == MEAN and lead.get("lead") is not None]
    varied = [
        axis for axis in (*sweep.axes, "workload", "load") if len({str(x.get(axis)) for x in found}) > 1
    ]
    names = in_order({lead["method"] for lead in found} - {REFERENCE, *BOUNDS})
    places = list(dict.fromkeys(tuple(str(lead[axis]) for axis in varied) for lead in found))
    cells = {(tuple(str(x[axis]) for axis in varied), x["method"]): _lead(x) for x in found}
    rows = [Row(", ".join(place), [cells.get((place, name), Cell()) for name in names]) for place in places]
    head = [", ".join(map(axis_label, varied)) or "cell", *map(label, names)]
    note = (
        f"{sweep.about}: points over {label(REFERENCE)}, which is played in each row, too; mean over the"
        " sets, with 95 % intervals."
    )
    return ResultTable(f"Sweep: {sweep.name}", head, rows, note[0].upper() + note[1:])


def leads_by_forecast(sweep: SweepResults) -> ResultTable:
    """The lead over LARA of every rule under every predictor, mean over the sets."""
    found = {lead["method"]: lead for lead in sweep.leads if lead["set"] == MEAN}
    cells = {}
    for name in found.keys() - {REFERENCE, *BOUNDS}:
        forecast = method_named(name).forecast
        cells[forecast, name.removesuffix(f"_{forecast}")] = _lead(found[name])
    forecasts, rules = (in_order(set(names)) for names in zip(*cells, strict=True))
    rows = [
        Row(label(forecast), [cells.get((forecast, rule), Cell()) for rule in rules])
        for forecast in forecasts
    ]
    note = (
        f"{sweep.about}: points over {label(REFERENCE)}, which is fed by {label('wls')}; mean over the sets,"
        " with 95 % intervals."
    )
    return ResultTable(
        f"Sweep: {sweep.name}", ["forecasts", *map(label, rules)], rows, note[0].upper() + note[1:]
    )


def axis_label(axis: str) -> str:
    """`simulator.switch_cost_steps` as people read it."""
    return axis.rpartition(".")[2].replace("_", " ")


def _lead(lead: Mapping[str, Any]) -> Cell:
    return Cell(points(lead["lead"]), brackets((lead["lead_low"], lead["lead_high"]), "+.1f"))
