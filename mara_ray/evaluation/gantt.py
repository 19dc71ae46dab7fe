"""One episode as a Gantt chart, method above method: which node worked on which task, and what became of it.

Axis letters: M nodes, J tasks of the episode, T steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mara_ray.evaluation.plots import STYLE, Picture, to_png
from mara_ray.evaluation.rollout import Rollout
from mara_ray.evaluation.tables import label

# Colours that colour-blind readers can tell apart.
# Tasks that arrive one after the other differ; numbers say the rest.
TASK_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8C8C8C")
LANE = 0.62  # height of a task's row, in those of a node
MARK = 0.02  # of the episode: the room that a number or a mark takes
SUCCESS, EXPIRY = "#006D3C", "#B00020"


def gantt(rollouts: Mapping[str, Rollout], episode: int, where: str) -> Picture:
    """Draw the same episode under several methods.

    Args:
        rollouts: by method, all of the same workload.
        episode: which of its episodes.
        where: how the episode was chosen, for the caption.
    """
    first = next(iter(rollouts.values()))
    num_steps, _, num_nodes = first.node_task_TBM.shape
    num_tasks = int(first.workload.num_tasks_B[episode])
    arrival_J = first.workload.arrival_BJ[episode, :num_tasks]
    deadline_J = first.workload.deadline_BJ[episode, :num_tasks]
    lane_J = pack_lanes(arrival_J, deadline_J + round(0.6 * MARK * num_steps))
    num_done = {name: int((r.outcomes.finished_BJ[episode] >= 0).sum()) for name, r in rollouts.items()}
    height = 0.75 + 0.26 * (num_nodes + LANE * (lane_J.max(initial=0) + 1))
    with plt.rc_context(STYLE | {"axes.grid": False}):
        figure, panels = plt.subplots(
            len(rollouts), 1, figsize=(7.2, height * len(rollouts) + 0.4), sharex=True, squeeze=False,
            layout="constrained",
        )  # fmt: skip
        for axes, (method, played) in zip(panels.ravel(), rollouts.items(), strict=True):
            finished_J = played.outcomes.finished_BJ[episode, :num_tasks]
            _draw_nodes(axes, played.node_task_TBM[:, episode], deadline_J, finished_J)
            _draw_windows(axes, arrival_J, deadline_J, finished_J, num_nodes + 0.7 + LANE * lane_J)
            _lay_out(axes, num_nodes, int(lane_J.max(initial=0)) + 1, num_steps)
            title = f"{label(method)}: {num_done[method]} of {num_tasks} tasks on time"
            axes.set_title(title, loc="left", weight="bold")
        panels.ravel()[-1].set_xlabel("step")
        figure.legend(handles=_legend(), loc="outside lower center", ncols=4, columnspacing=1.4)
        png = to_png(figure)
    caption = (
        f"The same arrivals under {' and '.join(map(label, num_done))} ({where}). Above the line: what each"
        " node works on, coloured and numbered by task. Under the line: each task from its arrival to its"
        " deadline; full colour until it is finished, faded where time was left, hollow if it never was."
    )
    counts = ", ".join(f"{label(method)} {count}" for method, count in num_done.items())
    alt = f"Gantt chart of one episode with {num_tasks} tasks; on time: {counts}."
    return Picture("gantt", "One episode, step by step", caption, alt, png)


def _lay_out(axes: Axes, num_nodes: int, num_lanes: int, num_steps: int) -> None:
    windows = num_nodes + 0.7 + LANE * (num_lanes - 1) / 2
    names = [f"node {node}" for node in range(num_nodes)] + ["tasks,\narrival\nto\ndeadline"]
    axes.set_yticks([*range(num_nodes), windows], names)
    axes.tick_params(axis="y", length=0)
    axes.set(xlim=(0, num_steps), ylim=(num_nodes + 0.7 + LANE * num_lanes, -0.6))
    axes.axhline(num_nodes, color="#444444", lw=0.6)


def pack_lanes(start_J: np.ndarray, end_J: np.ndarray) -> np.ndarray:
    """Put intervals into as few lanes as need be, so that none overlap in a lane; lane of each, int (J,)."""
    free_from: list[int] = []
    lane_J = np.zeros(len(start_J), np.int64)
    for task in np.argsort(start_J, kind="stable"):
        fits = [lane for lane, free in enumerate(free_from) if free <= start_J[task]]
        lane = fits[0] if fits else len(free_from)
        if not fits:
            free_from.append(0)
        free_from[lane] = int(end_J[task])
        lane_J[task] = lane
    return lane_J


def segments(task_T: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of the same task on one node, as (task, first step, number of steps); idle steps left out."""
    edges = np.flatnonzero(np.diff(task_T)) + 1
    starts = np.concatenate([[0], edges])
    ends = np.concatenate([edges, [len(task_T)]])
    return [(int(task_T[s]), int(s), int(e - s)) for s, e in zip(starts, ends, strict=True) if task_T[s] >= 0]


def _draw_nodes(axes: Axes, node_task_TM: np.ndarray, deadline_J: np.ndarray, finished_J: np.ndarray) -> None:
    for node in range(node_task_TM.shape[1]):
        for task, start, length in segments(node_task_TM[:, node]):
            colour = TASK_COLOURS[task % len(TASK_COLOURS)]
            axes.barh(node, length, 0.8, left=start, color=colour, edgecolor="white", lw=0.3)
            if length >= MARK * len(node_task_TM):
                ink = "white" if colour == TASK_COLOURS[0] else "black"
                axes.text(
                    start + length / 2, node, str(task), ha="center", va="center", fontsize=6.5, color=ink
                )
            if start + length == deadline_J[task] and finished_J[task] < 0:
                axes.plot(start + length, node, marker="x", ms=4, color=EXPIRY, clip_on=False, zorder=5)
            if finished_J[task] == start + length - 1:
                axes.plot(
                    start + length, node, marker="o", ms=4, color=SUCCESS, mec="white", mew=0.6, clip_on=False
                )


def _draw_windows(
    axes: Axes, arrival_J: np.ndarray, deadline_J: np.ndarray, finished_J: np.ndarray, height_J: np.ndarray
) -> None:
    rows = zip(arrival_J, deadline_J, finished_J, height_J, strict=True)
    for task, (arrival, deadline, finished, y) in enumerate(rows):
        colour = TASK_COLOURS[task % len(TASK_COLOURS)]
        on_time = finished >= 0
        end = finished + 1 if on_time else deadline
        axes.barh(y, deadline - arrival, 0.44, left=arrival, color="none", edgecolor=colour, lw=0.7)
        if on_time:
            axes.barh(y, deadline - arrival, 0.44, left=arrival, color=colour, alpha=0.25, lw=0)
            axes.barh(y, end - arrival, 0.44, left=arrival, color=colour, lw=0)
        axes.annotate(
            str(task), (arrival, y), (2, 0), textcoords="offset points", ha="left", va="center", fontsize=5.5
        )
        mark = (
            {"marker": "o", "color": SUCCESS, "mec": "white", "mew": 0.6}
            if on_time
            else {"marker": "x", "color": EXPIRY}
        )
        axes.plot(end, y, ms=4, ls="", clip_on=False, zorder=5, **mark)
        axes.plot([deadline, deadline], [y - 0.28, y + 0.28], color="black", lw=0.9, clip_on=False)


def _legend() -> Sequence[Line2D | Patch]:
    return [
        Line2D([], [], ls="", marker="o", color=SUCCESS, label="finished on time"),
        Line2D([], [], ls="", marker="x", color=EXPIRY, label="expired at its deadline"),
        Line2D([], [], ls="", marker="|", ms=8, color="black", label="deadline"),
        Patch(facecolor=TASK_COLOURS[0], label="a task (number in the bar)"),
    ]
