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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Report = Callable[[int, int, str], None]  # (done, total, what is going on)

PLAIN_LINE_SECONDS = 10.0


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
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
    else:
        yield _plain_lines(title)


def _plain_lines(title: str) -> Report:
    last = {"time": -PLAIN_LINE_SECONDS, "done": -1.0}

    def report(done: int, total: int, text: str) -> None:
        now = time.monotonic()
        due = now - last["time"] >= PLAIN_LINE_SECONDS or done >= total
        if due and done != last["done"]:
            say(f"{title}: {done}/{total} {text}".rstrip())
            last.update(time=now, done=done)

    return report
