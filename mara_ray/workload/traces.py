"""Cluster traces as workloads: when jobs came, how long they ran, and when they were due.

The files are CSV with a header and at least the columns `submit_time`, `duration` and `deadline`, to which
the traces of Philly, Chronus and Alibaba are easily brought. `SAMPLE_TRACE` ships: it is synthetic.

Axis letters: B episodes, J tasks of an episode or trace, C curves, G target levels, P (curve, level) pairs.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from mara_ray.config import WorkloadConfig
from mara_ray.curves.bank import NEVER
from mara_ray.errors import UserError
from mara_ray.seeding import generator
from mara_ray.workload.episodes import Workload, padded

COLUMNS = ("submit_time", "duration", "deadline")
SAMPLE_TRACE = Path(__file__).with_name("sample_trace_synthetic.csv")


@dataclass(frozen=True, eq=False)
class Trace:
    """The jobs of a trace, in order of submission.

    Attributes:
        submit_s_J: float64, seconds since the first submission.
        duration_s_J: float64, seconds of service the job took; over 0.
        deadline_s_J: float64, seconds since the first submission; after the job's own.
    """

    submit_s_J: np.ndarray
    duration_s_J: np.ndarray
    deadline_s_J: np.ndarray


def read_trace(path: Path) -> Trace:
    """Read a trace.

    `submit_time` and `deadline` are seconds, or dates as in 2017-10-09 07:02:38 (UTC unless they say
    otherwise); `duration` is seconds. Other columns, blank lines and lines that begin with # are passed over.

    Raises:
        UserError: the file is missing or is no such table; the line and the column are named.
    """
    jobs: list[tuple[float, float, float]] = []
    header: list[str] | None = None
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                where = f"trace: {path} line {reader.line_num}"
                if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
                    continue
                if header is None:
                    header = _header(cells, where)
                else:
                    jobs.append(_job(header, cells, where))
    except FileNotFoundError as error:
        raise UserError(f"trace: {path} is missing; give the path of a CSV file") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"trace: {path} is not a readable CSV file ({error}); save it as UTF-8") from error
    if not jobs:
        raise UserError(
            f"trace: {path} has no job; give a header {','.join(COLUMNS)} and a line for each job"
        )
    table_J3 = np.array(sorted(jobs, key=lambda job: job[0]))
    first = table_J3[0, 0]
    return Trace(table_J3[:, 0] - first, table_J3[:, 1], table_J3[:, 2] - first)


def trace_workload(
    trace: Trace,
    config: WorkloadConfig,
    points_needed_CG: np.ndarray,
    rows: np.ndarray,
    seconds_per_step: float,
    seed: int,
) -> Workload:
    """A trace on our curves, cut into episodes of T steps.

    A job arrives in the step in which it was submitted, and its window is that of the trace, in whole steps
    and at least 1. It becomes a task on the (curve, target level) whose demand is nearest to its duration,
    one of them by chance if there are several; so a job longer than all curves gets the longest. Deadlines
    after the end of an episode are treated as `config.beyond_end` says.

    Args:
        trace: the jobs.
        config: T, and what becomes of deadlines after it.
        points_needed_CG: int, points that must be seen until each target is met; `bank.NEVER` if never.
        rows: curves to draw from, int.
        seconds_per_step: seconds of the trace that pass in a step; more of them make a heavier load.
        seed: root of the draws.

    Raises:
        UserError: the step is not over 0 seconds, or no curve meets a target.
    """
    if not (math.isfinite(seconds_per_step) and seconds_per_step > 0):
        raise UserError(f"trace: {seconds_per_step} seconds per step is not over 0")
    steps = config.episode_steps
    step_J = np.floor(trace.submit_s_J / seconds_per_step).astype(np.int64)
    window_J = np.floor((trace.deadline_s_J - trace.submit_s_J) / seconds_per_step)
    window_J = np.clip(window_J, 1, 2 * steps).astype(np.int64)  # so far after the end all are alike
    episode_J, arrival_J = np.divmod(step_J, steps)
    deadline_J = arrival_J + window_J
    curve_J, level_J = _nearest(trace.duration_s_J / seconds_per_step, points_needed_CG, rows, seed)
    task_4J = np.stack([arrival_J, np.minimum(deadline_J, steps), curve_J, level_J]).astype(np.int32)
    kept_J = (deadline_J <= steps) | (config.beyond_end == "cut")
    num_episodes = int(episode_J[-1]) + 1
    return padded([task_4J[:, kept_J & (episode_J == episode)] for episode in range(num_episodes)])


def _nearest(
    demand_J: np.ndarray, points_needed_CG: np.ndarray, rows: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """A curve and a level for each demand in steps, int (J,) each."""
    row_P, level_P = np.nonzero((points_needed_CG[rows] > 1) & (points_needed_CG[rows] < NEVER))
    if len(row_P) == 0:
        raise UserError("trace: no curve meets any of its targets; give other curves or target levels")
    curve_P = np.asarray(rows)[row_P]
    demand_P = points_needed_CG[curve_P, level_P] - 1
    pair_J = np.empty(len(demand_J), np.int64)
    for job, demand in enumerate(demand_J):
        distance_P = np.abs(demand_P - demand)
        nearest = np.flatnonzero(distance_P == distance_P.min())
        pair_J[job] = generator(seed, "workload", "trace", job).choice(nearest)
    return curve_P[pair_J], level_P[pair_J]


def _header(cells: list[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    missing = [column for column in COLUMNS if names.count(column) != 1]
    if missing:
        raise UserError(f"{where}: the header has no, or more than one, {missing[0]!r}; it has {names}")
    return names


def _job(header: list[str], cells: list[str], where: str) -> tuple[float, float, float]:
    """Submission, duration and deadline in seconds."""
    if len(cells) != len(header):
        raise UserError(f"{where}: {len(cells)} cells under a header of {len(header)}; mend the line")
    text = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
    submit = _seconds(text["submit_time"], "submit_time", where, dates=True)
    duration = _seconds(text["duration"], "duration", where, dates=False)
    deadline = _seconds(text["deadline"], "deadline", where, dates=True)
    if duration <= 0:
        raise UserError(f"{where}: duration {text['duration']!r} is not over 0 seconds")
    if deadline <= submit:
        raise UserError(f"{where}: deadline {text['deadline']!r} is not after the submission")
    return submit, duration, deadline


def _seconds(text: str, column: str, where: str, dates: bool) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = _date(text) if dates else math.nan
    if not math.isfinite(seconds):
        kind = "a number of seconds or a date" if dates else "a number of seconds"
        raise UserError(f"{where}: {column} {text!r} is not {kind}")
    return seconds


def _date(text: str) -> float:
    """Seconds since 1970, or NaN if the text is no date."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
