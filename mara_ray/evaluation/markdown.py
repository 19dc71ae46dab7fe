"""Tables as Markdown, and the marked parts of a page that are filled with them.

A marked part stands between the lines `<!-- results:begin TABLE SOURCE -->` and `<!-- results:end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mara_ray.errors import UserError
from mara_ray.evaluation.result_tables import Cell, ResultTable, Row

NO_BREAK = "\N{NO-BREAK SPACE}"  # an interval stays on one line
MARK = re.compile(r"^<!-- results:(.*?) *-->$")
BEGIN = re.compile(r"^begin (\S+) (\S+)$")


def to_markdown(table: ResultTable, with_note: bool = True) -> str:
    """A table, its note under it; reference levels in italics, established differences in bold."""
    lines = [_line(table.head), "|" + "---|" * len(table.head), *map(_row, table.rows)]
    return "\n".join(lines) + (f"\n\n{table.note}" if with_note and table.note else "")


def _row(row: Row) -> str:
    return _line([f"*{row.name}*" if row.reference else row.name, *map(_cell, row.cells)])


def _cell(cell: Cell) -> str:
    value = f"**{cell.value}**" if cell.claim else cell.value
    interval = cell.interval.replace(" ", NO_BREAK)
    return f"{value} {interval}".strip()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def fill(page: str, make: Callable[[str, str], str], name: str) -> str:
    """A page with its marked parts made anew.

    Args:
        page: its text.
        make: the content of a part, from its table and source.
        name: of the page, for errors.

    Raises:
        UserError: markers do not pair up, or one is misspelt.
    """
    filled: list[str] = []
    inside = False
    for number, line in enumerate(page.split("\n"), 1):
        mark = MARK.match(line)
        if mark is None:
            if not inside:
                filled.append(line)
            continue
        begin = BEGIN.match(mark[1])
        if inside != (mark[1] == "end") or (begin is None and not inside):
            raise UserError(f"{name}, line {number}: {line!r} is out of place; mend the markers of results")
        filled.append(line)
        if begin is not None:
            filled.append(make(*begin.groups()))
        inside = begin is not None
    if inside:
        raise UserError(f"{name}: the last marked part is not closed; add <!-- results:end -->")
    return "\n".join(filled)
