"""What is seen of a live run: a table of nodes and one of jobs on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from mara_ray import progress
from mara_ray.live.controller import Controller
from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import READY_POINTS

EVENTS_SHOWN = 6
BAND_CELLS = 24
LINE_SECONDS = 10.0


class PlainView:
    """A line for whatever happens, and one every ten seconds."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, line: str) -> None:
        """Print a line."""
        progress.say(f"schedule: {line}")

    def update(self, run: Controller, observation: Observation | None, action_M: np.ndarray) -> None:
        """Print how far the run is, if it is time to."""
        if time.monotonic() - self._last_s >= LINE_SECONDS:
            self._last_s = time.monotonic()
            present = [run.jobs.jobs[task].name for task in run.pool.present()]
            self.say(f"step {run.pool.state.time}, {_count(run)}; here: {', '.join(present) or 'none'}")


class TerminalView:
    """Tables that are drawn anew with every step."""

    def __init__(self, console: Console) -> None:
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._live = Live(console=console, refresh_per_second=8)

    def __enter__(self) -> TerminalView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Show a line under the tables, among the last."""
        self._events.append(line)

    def update(self, run: Controller, observation: Observation | None, action_M: np.ndarray) -> None:
        """Draw the run."""
        if observation is not None:
            self._live.update(Group(*tables(run, observation, action_M), *self._events))


def view_of(console: Console) -> PlainView | TerminalView:
    """The view that suits a console."""
    return TerminalView(console) if console.is_terminal else PlainView()


def tables(run: Controller, observation: Observation, action_M: np.ndarray) -> tuple[Table, Table]:
    """What the nodes do, and how the jobs stand, as the allocator has just seen it."""
    slot_names = [
        "idle",
        *(run.jobs.jobs[task].name if task >= 0 else "" for task in observation.task_BK[0]),
    ]
    step, seconds = int(observation.time_B[0]), run.elapsed_s
    nodes = Table(title=f"step {step}, {seconds:.0f} s: {_count(run)}", title_justify="left")
    for node in range(len(action_M)):
        nodes.add_column(f"node {node}")
    nodes.add_row(*(slot_names[choice] for choice in action_M.tolist()))
    jobs = Table("job", "blocks", "loss", "target", "steps still needed", "", "left", "slack")
    for slot in np.flatnonzero(observation.active_BK[0]).tolist():
        jobs.add_row(*_row(run, observation, slot))
    return nodes, jobs


def _row(run: Controller, observation: Observation, slot: int) -> list[str]:
    samples_N = observation.remaining_BKN[0, slot]
    seen = int(observation.num_seen_BK[0, slot])
    left = int(observation.deadline_BK[0, slot] - observation.time_B[0])
    row = [
        run.jobs.jobs[int(observation.task_BK[0, slot])].name,
        str(seen - 1),
        f"{observation.loss_BK[0, slot]:.3g}",
        f"{observation.target_BK[0, slot]:.3g}",
    ]
    if seen < READY_POINTS:
        return [*row, "too early to tell", "", str(left), ""]
    median = float(np.median(samples_N))
    numbers = f"{samples_N[0]:.0f} .. {median:.0f} .. {samples_N[-1]:.0f}"
    slack = left - median
    colour = "green" if slack >= 0 else "red"
    return [*row, numbers, band(samples_N, left), str(left), f"[{colour}]{slack:+.0f}[/]"]


def band(samples_N: np.ndarray, left: int) -> str:
    """The forecast's samples from least to greatest, the median as o, and the deadline as |."""
    scale = (BAND_CELLS - 1) / max(float(samples_N[-1]), left, 1)
    cells = [" "] * BAND_CELLS
    for cell in range(round(samples_N[0] * scale), round(samples_N[-1] * scale) + 1):
        cells[cell] = "─"
    cells[round(float(np.median(samples_N)) * scale)] = "o"
    cells[round(left * scale)] = "|"
    return "".join(cells)


def _count(run: Controller) -> str:
    met = int((run.pool.state.outcomes.finished_BJ[0] >= 0).sum())
    return f"{met} met, {len(run.left) - met} missed or failed, of {len(run.jobs.jobs)}"
