"""Progress of long work: a bar on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Report = Callable[[int, int, str], None]  # (done, total, what is going on)

PLAIN_LINE_SECONDS = 10.0


class PaceColumn(ProgressColumn):
    """How many a minute are done."""

    def render(self, task: Task) -> Text:
        """The pace; empty until it can be told."""
        return Text(f"{60 * task.speed:.0f}/min" if task.speed else "")


def silent(done: int, total: int, text: str) -> None:
    """Report nothing."""


def say(line: str) -> None:
    """Print one line for the user, on standard error."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def shown(title: str) -> Iterator[Report]:
    """Show the progress of one piece of work under `title`; yields the function to report it with."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn(f"[bold]{title:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            PaceColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
    else:
        yield _plain_lines(title)


def _plain_lines(title: str) -> Report:
    last = {"time": -PLAIN_LINE_SECONDS, "done": -1.0}
    first: list[tuple[float, int]] = []  # when the first report came, and what was done by then

    def report(done: int, total: int, text: str) -> None:
        now = time.monotonic()
        if not first:
            first.append((now, done))
        due = now - last["time"] >= PLAIN_LINE_SECONDS or done >= total
        if due and done != last["done"]:
            pace = _pace(now - first[0][0], done - first[0][1], total - done)
            say(f"{title}: {done}/{total} {text}".rstrip() + pace)
            last.update(time=now, done=done)

    return report


def _pace(elapsed_s: float, done: int, left: int) -> str:
    """How fast it goes and how long it will take, once that can be told."""
    if done <= 0 or elapsed_s < PLAIN_LINE_SECONDS:
        return ""
    left_s = left * elapsed_s / done
    left_text = f"{left_s:.0f} s" if left_s < 120 else f"{left_s / 60:.0f} min"
    return f" ({60 * done / elapsed_s:.0f} a minute" + (f", {left_text} left)" if left else ")")
