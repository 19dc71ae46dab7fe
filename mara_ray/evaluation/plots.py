"""The pictures of the report: each returns a PNG with its caption and a text for those who cannot see it.

Axis letters: L points, N samples, H bins, C curves. Colours are Okabe and Ito's, safe for colour-blind
readers: blue for learned allocators, orange for LARA, grey for queues.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.tables import label

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
    "edf": "#7F7F7F",
    "fifo": "#B3B3B3",
}
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


@dataclass(frozen=True)
class Fan:
    """A forecast from one prefix of one curve.

    Attributes:
        title: what curve it is.
        ema_L: the whole smoothed curve, the true future included.
        num_seen: points n the predictor saw.
        means_NH: sampled futures as mean losses of H bins that share the L - n remaining steps.
    """

    title: str
    ema_L: np.ndarray
    num_seen: int
    means_NH: np.ndarray


def to_png(figure: Figure) -> bytes:
    """Render and close a figure; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()


def small_multiples(num_panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """A grid of up to three panels a row; unused places are blank."""
    columns = min(3, num_panels)
    rows = -(-num_panels // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(7.2, height * rows), squeeze=False, layout="constrained"
    )
    for spare in grid.ravel()[num_panels:]:
        spare.axis("off")
    return figure, list(grid.ravel()[:num_panels])


def sample_curves(bank: CurveBank, curves_per_panel: int = 30) -> Picture:
    """Smoothed loss curves, one panel per configuration; curves that did not learn are dashed grey."""
    names = list(dict.fromkeys(bank.configuration[np.argsort(bank.set, kind="stable")].tolist()))
    with plt.rc_context(STYLE):
        figure, panels = small_multiples(len(names), 2.1)
        for axes, name in zip(panels, names, strict=True):
            rows = np.flatnonzero(bank.configuration == name)
            learned, failed = rows[bank.accepted[rows]], rows[~bank.accepted[rows]]
            for row in failed[: curves_per_panel // 5]:
                axes.plot(bank.ema_CL[row], color="#999999", lw=0.7, ls=(0, (4, 3)))
            shown = learned[np.linspace(0, len(learned) - 1, min(len(learned), curves_per_panel)).astype(int)]
            colours = plt.get_cmap("viridis")(np.linspace(0.05, 0.85, len(shown)))
            for row, colour in zip(shown[np.argsort(bank.ema_CL[shown, 0])], colours, strict=True):
                axes.plot(bank.ema_CL[row], color=colour, lw=0.8, alpha=0.8)
            axes.set(yscale="log", xlim=(0, bank.length_points - 1))
            axes.set_title(f"{name} ({label(str(bank.set[rows[0]]))}), {len(learned)} curves", loc="left")
        figure.supxlabel("blocks of training", fontsize=9)
        figure.supylabel("smoothed training loss (log)", fontsize=9)
        png = to_png(figure)
    rejected = int((~bank.accepted).sum())
    caption = (
        "Loss curves of real trainings, one panel per model-dataset configuration (at most"
        f" {curves_per_panel} drawn). Colour orders them by their first loss. Dashed grey: trainings that"
        f" did not learn ({rejected} in the bank); they are kept, flagged, and never drawn as tasks here."
    )
    alt = f"Falling loss curves in {len(names)} panels: {', '.join(names)}."
    return Picture("curves", "What the tasks look like", caption, alt, png)


def forecast_fans(fans: Sequence[Fan]) -> Picture:
    """Sampled futures as 50 and 90 % bands against what then happened."""
    with plt.rc_context(STYLE):
        figure, panels = small_multiples(len(fans), 2.2)
        for axes, fan in zip(panels, fans, strict=True):
            _draw_fan(axes, fan)
        figure.supxlabel("blocks of training", fontsize=9)
        figure.supylabel("smoothed training loss (log)", fontsize=9)
        handles = [
            Line2D([], [], color="black", lw=1.6, label="seen by the predictor"),
            Line2D([], [], color=VERMILION, lw=1.2, label="true future"),
            Line2D([], [], color=BLUE, lw=1.2, label="median forecast"),
            Patch(color=BLUE, alpha=0.35, label="50 % band"),
            Patch(color=BLUE, alpha=0.15, label="90 % band"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=5, columnspacing=1.2)
        png = to_png(figure)
    samples = fans[0].means_NH.shape[0] if fans else 0
    caption = (
        "Forecasts for test curves the predictor was not trained on. Black is what it saw; the bands hold the"
        f" middle 50 % and 90 % of its {samples} sampled futures; red is what happened. A task is finished"
        " where its curve first meets its target, so a sampled future gives a sampled finishing time."
    )
    alt = f"{len(fans)} loss curves with forecast bands: " + "; ".join(fan.title for fan in fans) + "."
    return Picture("fans", "What the predictor expects", caption, alt, png)


def _draw_fan(axes: Axes, fan: Fan) -> None:
    num_seen, length = fan.num_seen, len(fan.ema_L)
    num_bins = fan.means_NH.shape[1]
    width = (length - num_seen) / num_bins
    # A bin's mean stands at the middle of its steps; the fan starts from the last loss seen.
    step_H = num_seen - 1 + np.concatenate([[0.0], (np.arange(num_bins) + 0.5) * width + 0.5])
    latest = np.full((len(fan.means_NH), 1), fan.ema_L[num_seen - 1])
    path_NH = np.concatenate([latest, fan.means_NH], axis=1)
    low90, low50, median, high50, high90 = np.quantile(path_NH, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    axes.fill_between(step_H, low90, high90, color=BLUE, alpha=0.15, lw=0)
    axes.fill_between(step_H, low50, high50, color=BLUE, alpha=0.35, lw=0)
    axes.plot(step_H, median, color=BLUE, lw=1.2)
    axes.plot(np.arange(num_seen - 1, length), fan.ema_L[num_seen - 1 :], color=VERMILION, lw=1.2)
    axes.plot(np.arange(num_seen), fan.ema_L[:num_seen], color="black", lw=1.6)
    axes.axvline(num_seen - 1, color="#888888", lw=0.8, ls=":")
    axes.set(yscale="log", xlim=(0, length - 1))
    axes.set_title(fan.title, loc="left")


def completion_bars(summary: Mapping[str, Any]) -> Picture:
    """Completion of every method and set with 95 % intervals, and the reference levels as lines."""
    methods, bounds = summary["methods"], summary["bounds"]
    sets = list(next(iter(methods.values())))
    width = 0.84 / len(methods)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
        for number, (method, by_set) in enumerate(methods.items()):
            centre = np.arange(len(sets)) + (number - (len(methods) - 1) / 2) * width
            level = np.array([by_set[name]["completion"] for name in sets])
            ends = np.array([by_set[name]["ci"] for name in sets])
            axes.bar(
                centre, level, 0.92 * width, color=METHOD_COLOURS.get(method, PURPLE), label=label(method)
            )
            errors = np.maximum(np.abs(ends.T - level), 0)
            axes.errorbar(centre, level, errors, fmt="none", ecolor="black", elinewidth=0.9, capsize=2)
            for x, value in zip(centre, level, strict=True):
                axes.text(x, 1.0, f"{value:.0f}", ha="center", va="bottom", fontsize=6.5, color="white")
        for name, by_set in bounds.items():
            for place, set_name in enumerate(sets):
                axes.plot(
                    [place - 0.46, place + 0.46],
                    [by_set[set_name]["completion"]] * 2,
                    color="black",
                    lw=1.1,
                    ls=BOUND_STYLES[name],
                    label=label(name) if place == 0 else None,
                )
        axes.set_xticks(range(len(sets)), [label(name) for name in sets])
        axes.set(ylabel="tasks finished on time, %", xlim=(-0.5, len(sets) - 0.5))
        axes.grid(axis="x", visible=False)
        figure.legend(loc="outside upper center", ncols=5, columnspacing=1.2)
        png = to_png(figure)
    caption = (
        "Share of all tasks that met their target before their deadline, at load"
        f" p = {summary['load']:g}. Whiskers are 95 % intervals of each level; since all methods meet the"
        " same episodes, differences are known better than the whiskers suggest: read them in the table of"
        " differences. Lines are reference levels that use what no real scheduler can know."
    )
    best = max(methods, key=lambda name: methods[name]["mean"]["completion"])
    levels = ", ".join(f"{label(m)} {v['mean']['completion']:.1f}" for m, v in methods.items())
    alt = f"Bars of completion by set; mean over sets in percent: {levels}. Highest: {label(best)}."
    return Picture("completion", "Who finishes how many tasks", caption, alt, png)


def learning_curves(histories: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> Picture:
    """What the policies learned over their updates, one panel per measured column.

    Args:
        histories: for each policy the lines of its metrics file; `step` is the update.
        columns: measured columns and what they are called on their axis.
    """
    colours = [BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE]
    with plt.rc_context(STYLE):
        figure, panels = small_multiples(len(columns), 2.4)
        for axes, (column, name) in zip(panels, columns.items(), strict=True):
            for colour, (policy, history) in zip(colours, histories.items(), strict=False):
                known = history.dropna(subset=[column]) if column in history else history.iloc[:0]
                axes.plot(
                    known["step"], known[column], color=colour, lw=1.3, marker="o", ms=2.5, label=policy
                )
            axes.set_title(name, loc="left")
            axes.set_xlabel("PPO update")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        png = to_png(figure)
    caption = (
        "Training of the allocators, one line per policy. The checkpoint that is evaluated is the one with"
        " the best completion on validation episodes, which the evaluation never meets."
    )
    alt = f"Learning curves of {', '.join(histories)}: {', '.join(columns.values())}."
    return Picture("learning", "How the allocators learned", caption, alt, png)
