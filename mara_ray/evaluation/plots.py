"""Pictures of results: each is a PNG with its caption and a text for those who cannot see it.

Colours are Okabe and Ito's (two of Tol's beside them), safe for colour-blind readers: blue for learned
allocators, orange for LARA, grey for queues.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from mara_ray.evaluation.tables import MEAN, label

BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#CC79A7",
)
METHOD_COLOURS = {
    "mara": BLUE,
    "mara_wls": SKY,
    "mara_sparse": GREEN,
    "lara_fm": ORANGE,
    "lara": VERMILION,
    "laira": PURPLE,
    "planner": "#332288",
    "srpt": "#882255",
    "edf": "#6E6E6E",
    "fifo": "#A6A6A6",
}
SPARE_COLOURS = ("#117733", "#AA4499", "#999933", "#44AA99")  # for methods without a colour of their own
MANY_METHODS = 7  # more bars than that leave no room for numbers
MARKERS = "os^vDP*XhdpH"
BOUND_STYLES = {"clairvoyant": "-", "independent": ":", "oracle_online": "--"}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 180,
}


@dataclass(frozen=True)
class Picture:
    """A picture of the report.

    Attributes:
        name: short, for files and anchors.
        title: its heading.
        caption: how to read it.
        alt: what it shows, in words.
        png: the image.
    """

    name: str
    title: str
    caption: str
    alt: str
    png: bytes


def to_png(figure: Figure) -> bytes:
    """Render and close a figure; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()


def method_styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A colour and a marker for each method, so that lines can be told apart without colours, too."""
    spare, markers = cycle(SPARE_COLOURS), cycle(MARKERS)
    return {
        name: {"color": METHOD_COLOURS.get(name) or next(spare), "marker": next(markers)} for name in methods
    }


def small_multiples(num_panels: int, height: float, columns: int | None = None) -> tuple[Figure, list[Axes]]:
    """A grid of up to three panels a row (four if there are many), or as asked; unused places are blank."""
    columns = min(columns or (3 if num_panels <= 9 else 4), num_panels)
    rows = -(-num_panels // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(7.2, height * rows), squeeze=False, layout="constrained"
    )
    for spare in grid.ravel()[num_panels:]:
        spare.axis("off")
    return figure, list(grid.ravel()[:num_panels])


def completion_bars(summary: Mapping[str, Any]) -> Picture:
    """Completion of every method and set with 95 % intervals, and the reference levels as lines."""
    methods, bounds = summary["methods"], summary["bounds"]
    sets = list(next(iter(methods.values())))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
        width = 0.84 / len(methods)
        colours = {name: style["color"] for name, style in method_styles(methods).items()}
        bars = [
            _draw_bars(axes, method, by_set, (number - (len(methods) - 1) / 2) * width, width, colours)
            for number, (method, by_set) in enumerate(methods.items())
        ]
        for name, by_set in bounds.items():
            for place, set_name in enumerate(sets):
                level = by_set[set_name]["completion"]
                axes.plot(
                    [place - 0.46, place + 0.46], [level] * 2, color="black", lw=1.1, ls=BOUND_STYLES[name]
                )
        lines = [Line2D([], [], color="black", lw=1.1, ls=BOUND_STYLES[n], label=label(n)) for n in bounds]
        axes.set_xticks(range(len(sets)), [label(name) for name in sets])
        axes.set(ylabel="tasks finished on time, %", xlim=(-0.5, len(sets) - 0.5))
        axes.grid(axis="x", visible=False)
        figure.legend(handles=bars, loc="outside upper center", ncols=6)
        figure.legend(handles=lines, loc="outside lower center", ncols=3)
        png = to_png(figure)
    caption = (
        "Share of all tasks that met their target before their deadline, at load"
        f" p = {summary['load']:g}. Whiskers are 95 % intervals of each level; since all methods meet the"
        " same episodes, differences are known better than the whiskers suggest: read them in the table of"
        " differences. Lines are reference levels that use what no real scheduler can know."
    )
    levels = ", ".join(f"{label(m)} {v[MEAN]['completion']:.1f}" for m, v in (methods | bounds).items())
    alt = f"Bars of completion by set. Mean over sets in percent: {levels}."
    return Picture("completion", "Who finishes how many tasks", caption, alt, png)


def _draw_bars(
    axes: Axes,
    method: str,
    by_set: Mapping[str, Any],
    offset: float,
    width: float,
    colours: Mapping[str, str],
) -> Patch:
    centre = np.arange(len(by_set)) + offset
    level = np.array([cell["completion"] for cell in by_set.values()])
    ends = np.array([cell["ci"] for cell in by_set.values()])
    colour = colours[method]
    axes.bar(centre, level, 0.92 * width, color=colour)
    errors = np.abs(ends.T - level)
    axes.errorbar(centre, level, errors, fmt="none", ecolor="black", elinewidth=0.9, capsize=2)
    if len(colours) <= MANY_METHODS:
        for x, value, top in zip(centre, level, ends[:, 1], strict=True):
            axes.text(x, top + 0.8, f"{value:.0f}", ha="center", va="bottom", fontsize=6.5)
    return Patch(color=colour, label=label(method))


def learning_curves(histories: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> Picture:
    """What the policies learned over their updates, one panel per measured column.

    Args:
        histories: for each policy the lines of its metrics file; `step` is the update.
        columns: measured columns, and what each panel is called.
    """
    colours = (BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE)
    with plt.rc_context(STYLE):
        figure, panels = small_multiples(len(columns), 2.4)
        for axes, (column, name) in zip(panels, columns.items(), strict=True):
            for number, (policy, history) in enumerate(histories.items()):
                known = history.reindex(columns=["step", column]).dropna()
                step, value = known["step"].to_numpy(), known[column].to_numpy()
                colour = colours[number % len(colours)]
                axes.plot(step, value, color=colour, lw=1.3, marker="o", ms=2.5, label=policy)
                if column == "validation_completion" and len(value):
                    best = int(value.argmax())
                    axes.plot(step[best], value[best], color=colour, marker="*", ms=10, mec="white", mew=0.6)
            axes.set_title(fill(name, 26), loc="left")
            axes.set_xlabel("PPO update")
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        png = to_png(figure)
    caption = (
        "Training of the allocators, one line per policy. The checkpoint that is evaluated (star) is the one"
        " with the best completion on validation episodes, whose curves the evaluation never meets."
    )
    alt = f"Learning curves of {', '.join(histories)}: {', '.join(columns.values())}."
    return Picture("learning", "How the allocators learned", caption, alt, png)
