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
from mara_ray.evaluation import forecast_tables, result_tables
from mara_ray.evaluation.findings import findings
from mara_ray.evaluation.paper_tables import NOTE, paper_tables
from mara_ray.evaluation.plots import Picture
from mara_ray.evaluation.result_tables import Cell, ResultTable, Row
from mara_ray.evaluation.run_results import RunResults, SweepResults


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from.

    Attributes:
        versions: of the package and what it stands on.
        seed: the run's root seed.
        config: the whole configuration, JSON-like.
    """

    versions: Mapping[str, str]
    seed: int
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A part of the page, with its name for links."""

    name: str
    title: str
    content: str


def write_report(
    path: Path,
    *,
    title: str,
    results: RunResults,
    sweeps: Sequence[SweepResults],
    pictures: Mapping[str, Picture],
    provenance: Provenance,
) -> None:
    """Write the report, whole or not at all.

    Args:
        path: of the HTML file.
        title: heading of the page.
        results: of the run.
        sweeps: shown beside them.
        pictures: by name, in the order of reading; "completion" stands on top, "loads" and "leads-" with a
            sweep's name beside their tables.
        provenance: for the foot of the page.

    Raises:
        UserError: the directory cannot be written.
        MachineError: the disk is full.
    """
    sections = _sections(results, sweeps, pictures)
    sections.append(Section("origin", "Where the numbers come from", _provenance(results, provenance)))
    links = [*((s.name, s.title) for s in sections), ("reading", "How to read this")]
    page = (resources.files("mara_ray.evaluation") / "report.html").read_text(encoding="utf-8")
    html = Template(page).substitute(
        title=escape(title),
        links="".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in links),
        sections="\n".join(map(_section, sections)),
    )
    with written_whole(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def _sections(
    results: RunResults, sweeps: Sequence[SweepResults], pictures: Mapping[str, Picture]
) -> list[Section]:
    summary, left = results.summary, dict(pictures)
    bullets = "".join(f"<li>{_text(sentence)}</li>" for sentence in findings(summary))
    sections = [
        Section("short", "In short", f"<ul>{bullets}</ul>"),
        _drawn(left.pop("completion")),
        _tabled("table", result_tables.completion(summary)),
        _tabled("differences", result_tables.differences(summary)),
    ]
    if len(results.loads) > 1:
        tables = (result_tables.by_load(results.loads), result_tables.differences_by_load(results.loads))
        content = _figure(left.pop("loads")) + "".join(map(_titled, tables))
        sections.append(Section("loads", "As the load grows", content))
    beside = "".join(map(_titled, paper_tables(results, sweeps)))
    if beside:
        note = f'<p class="note">{_text(NOTE)}</p>'
        sections.append(Section("paper", "The paper's numbers beside ours", note + beside))
    for sweep in sweeps:
        picture, table = left.pop(f"leads-{sweep.name}", None), result_tables.leads(sweep)
        content = (_figure(picture) if picture else "") + _table(table)
        sections.append(Section(f"sweep-{sweep.name}", table.title, content))
    sections += map(_drawn, left.values())
    sections.append(_tabled("forecasts", forecast_tables.predictors(results.predictors)))
    sections.append(_tabled("operation", result_tables.diagnostics(summary)))
    return sections


def _section(section: Section) -> str:
    return f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n{section.content}\n</section>'


def _drawn(picture: Picture) -> Section:
    return Section(picture.name, picture.title, _figure(picture))


def _tabled(name: str, table: ResultTable) -> Section:
    return Section(name, table.title, _table(table))


def _titled(table: ResultTable) -> str:
    return f"<h3>{escape(table.title)}</h3>{_table(table)}"


def _text(plain: str) -> str:
    """Escaped, and no line break before a percent sign."""
    return escape(plain).replace(" %", "&nbsp;%")


def _scroll(content: str, name: str) -> str:
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{content}</div>'


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    image = f'<img alt="{escape(picture.alt)}" src="data:image/png;base64,{data}">'
    return (
        f"<figure>{_scroll(image, picture.title)}<figcaption>{_text(picture.caption)}</figcaption></figure>"
    )


def _table(table: ResultTable) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.head)
    body = "".join(map(_row, table.rows))
    html = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return _scroll(html, table.title) + (f'<p class="note">{_text(table.note)}</p>' if table.note else "")


def _row(row: Row) -> str:
    kind = ' class="reference"' if row.reference else ""
    return f'<tr{kind}><th scope="row">{_text(row.name)}</th>{"".join(map(_cell, row.cells))}</tr>'


def _cell(cell: Cell) -> str:
    small = f"<small>{escape(cell.interval)}</small>" if cell.interval else ""
    kind = ' class="claim"' if cell.claim else ' class="prose"' if cell.prose else ""
    return f"<td{kind}>{escape(cell.value)}{small}</td>"


def _provenance(results: RunResults, provenance: Provenance) -> str:
    facts = {f"{name} hash": value for name, value in results.summary["hashes"].items()}
    facts |= {"seed": str(provenance.seed), **provenance.versions}
    facts |= {
        f"{stage}, wall": f"{record['wall_s']:.0f} s"
        for stage, record in results.stages.items()
        if stage != "report"
    }
    items = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(value)}</code></dd>" for name, value in facts.items()
    )
    folded = {"The manifest": results.stages, "The whole configuration": provenance.config}
    return f"<dl>{items}</dl>" + "".join(map(_folded, folded.items()))


def _folded(item: tuple[str, Any]) -> str:
    name, content = item
    text = escape(json.dumps(content, indent=2))
    return f'<details><summary>{name}</summary><pre tabindex="0">{text}</pre></details>'
