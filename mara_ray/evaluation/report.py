"""report.html: one file that opens anywhere, without a network, on a desk or a phone."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from mara_ray.artifacts import written_whole
from mara_ray.evaluation.diagnostics import MEASURES
from mara_ray.evaluation.findings import MINUS, established, findings, points, span
from mara_ray.evaluation.plots import Picture
from mara_ray.evaluation.tables import MEAN, label, predictor_scores

# The scores of a predictor that are shown, and the factor to the unit of the column.
SCORES = {"capped_mae": 1, "success_accuracy": 100, "crps": 1, "coverage_90": 100}


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from.

    Attributes:
        versions: of the package and what it stands on.
        seed: the run's root seed.
        config: the whole configuration, JSON-like.
        stage_seconds: wall-clock seconds of each stage.
    """

    versions: Mapping[str, str]
    seed: int
    config: Mapping[str, Any]
    stage_seconds: Mapping[str, float]


def write_report(
    path: Path,
    *,
    title: str,
    summary: Mapping[str, Any],
    predictors: Mapping[str, Any],
    pictures: Sequence[Picture],
    provenance: Provenance,
) -> None:
    """Write the report, whole or not at all.

    Args:
        path: of the HTML file.
        title: heading of the page.
        summary: see `tables.summarise`; its "diagnostics" are those of `diagnostics.diagnose`.
        predictors: see `predictor.evaluate.evaluate_predictors`.
        pictures: in the order of reading; the first stands on top, beside the table.
        provenance: for the foot of the page.

    Raises:
        UserError: the directory cannot be written.
        MachineError: the disk is full.
    """
    first, *others = pictures
    bullets = "".join(f"<li>{_text(sentence)}</li>" for sentence in findings(summary))
    results = [
        _section("In short", f"<ul>{bullets}</ul>"),
        _section(first.title, _figure(first)),
        _section("Completion", _completion(summary)),
        _section("Differences", _differences(summary)),
        *(_section(picture.title, _figure(picture)) for picture in others),
        _section("Forecasts of remaining demand", _predictors(predictors)),
        _section("How the methods work the pool", _diagnostics(summary["diagnostics"])),
    ]
    page = (resources.files("mara_ray.evaluation") / "report.html").read_text(encoding="utf-8")
    html = Template(page).substitute(
        title=escape(title),
        results="\n".join(results),
        provenance=_section("Where the numbers come from", _provenance(summary, provenance)),
    )
    with written_whole(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _text(plain: str) -> str:
    """Escaped, and no line break before a percent sign."""
    return escape(plain).replace(" %", "&nbsp;%")


def _scroll(content: str, name: str) -> str:
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{content}</div>'


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    image = f'<img id="{picture.name}" alt="{escape(picture.alt)}" src="data:image/png;base64,{data}">'
    return (
        f"<figure>{_scroll(image, picture.title)}<figcaption>{_text(picture.caption)}</figcaption></figure>"
    )


def _table(head: Sequence[str], rows: Sequence[str], name: str) -> str:
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return _scroll(f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>", name)


def _row(name: str, cells: Sequence[str], kind: str = "") -> str:
    return f'<tr class="{kind}"><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>'


def _cell(value: str, under: str = "", claim: bool = False) -> str:
    small = f"<small>{escape(under)}</small>" if under else ""
    return f"<td{' class=claim' if claim else ''}>{escape(value)}{small}</td>"


def _completion(summary: Mapping[str, Any]) -> str:
    sets = list(next(iter(summary["methods"].values())))
    rows = []
    for kind, group in (("", summary["methods"]), ("reference", summary["bounds"])):
        for method, by_set in group.items():
            cells = [_cell(f"{by_set[s]['completion']:.1f}", span(by_set[s]["ci"])) for s in sets]
            share = summary["gap_closed"].get(method, {}).get(MEAN)
            if share is None:
                cells.append(_cell(""))
            else:
                ends = [100 * end for end in summary["gap_closed_ci"][method][MEAN]]
                cells.append(_cell(f"{100 * share:.0f} %".replace("-", MINUS), span(ends)))
            rows.append(_row(label(method), cells, kind))
    head = ["method", *(label(s) for s in sets), "gap closed"]
    episodes = summary["episodes"]
    counts = ", ".join(f"{episodes[s]} {label(s)}" for s in sets if s in episodes)
    note = (
        f"Tasks finished on time in %, at load p = {summary['load']:g}. Small: 95 % intervals. {counts}"
        f" episodes from {episodes['roots']} workload roots; {episodes['training_seeds']} training seed(s) of"
        " each learned method. Grey: reference levels. Gap closed: how much of the way from LARA to the"
        " clairvoyant optimum, on the mean."
    )
    return _table(head, rows, "Completion by method and set") + f'<p class="note">{_text(note)}</p>'


def _differences(summary: Mapping[str, Any]) -> str:
    rows, sets = [], list(next(iter(summary["methods"].values())))
    for pair, by_set in summary["differences"].items():
        first, second = pair.split("-")
        cells = [
            _cell(points(by_set[s]["points"]), span(by_set[s]["ci"], signed=True), established(by_set[s]))
            for s in sets
        ]
        cells += [_cell(f"{by_set[MEAN][key]:.4f}") for key in ("p", "p_holm")]
        rows.append(_row(f"{label(first)} {MINUS} {label(second)}", cells))
    head = ["difference in points", *(label(s) for s in sets), "p", "Holm's p"]
    note = (
        "Paired on the same episodes. Blue: the interval leaves out 0 and Holm's p is under 0.05."
        " The p values shown are those of the mean."
    )
    return _table(head, rows, "Differences") + f'<p class="note">{_text(note)}</p>'


def _predictors(evaluation: Mapping[str, Any]) -> str:
    rows = []
    for name, set_name, scores, versus in predictor_scores(evaluation):
        cells = [_cell(f"{factor * scores[key]:.1f}") for key, factor in SCORES.items()]
        if versus:
            cells.append(_cell(points(versus["mae_reduction_percent"]), span(versus["ci"], signed=True)))
        else:
            cells.append(_cell(""))
        rows.append(_row(f"{label(name)}, {label(set_name)}", cells))
    head = ["predictor, set", "capped MAE", "on time? right, %", "CRPS", "in 90 % band, %", "MAE saved, %"]
    note = (
        "On test curves, which no predictor was fitted to. Capped MAE: error of the steps still needed, never"
        " counted as the remaining cap. On time: how often it says rightly whether a task will be done within"
        " a window. CRPS: the error of the whole distribution, in steps. MAE saved: against WLS, with its"
        " paired 95 % interval over curves."
    )
    return _table(head, rows, "Forecasts") + f'<p class="note">{_text(note)}</p>'


def _diagnostics(table: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        _row(label(method), [_cell(f"{cells[m]['mean']:.1f}", span(cells[m]["ci"])) for m in MEASURES])
        for method, cells in table.items()
    ]
    head = ["method", *(name for name, _ in MEASURES.values())]
    return _table(head, rows, "Operation") + '<p class="note">Means over episodes, sets weighted equally.</p>'


def _provenance(summary: Mapping[str, Any], provenance: Provenance) -> str:
    facts = {f"{name} hash": value for name, value in summary["hashes"].items()}
    facts |= {"seed": str(provenance.seed), **provenance.versions}
    facts |= {f"{stage}, wall": f"{seconds:.0f} s" for stage, seconds in provenance.stage_seconds.items()}
    items = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>" for name, value in facts.items()
    )
    config = escape(json.dumps(provenance.config, indent=2))
    return f"<dl>{items}</dl><details><summary>The whole configuration</summary><pre>{config}</pre></details>"
