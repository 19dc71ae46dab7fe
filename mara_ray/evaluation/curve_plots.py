"""Pictures of loss curves: the tasks themselves, and what the predictor expects of them.

Axis letters: C curves, L points, N samples, H bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.plots import BLUE, GREEN, STYLE, VERMILION, Picture, small_multiples, to_png
from mara_ray.evaluation.tables import label
from mara_ray.predictor.targets import bin_edges, bin_middles


@dataclass(frozen=True)
class Fan:
    """A forecast from one prefix of one curve.

    Attributes:
        title: what curve it is.
        ema_L: the whole smoothed curve, the true future included.
        num_seen: points n the predictor saw.
        means_NH: sampled futures of the lowest loss, as means of H bins that share the L - n remaining steps.
        first_step, step_width: the step of point 0, and steps between points, on the axis of steps.
        target: the loss to reach, if one is to be shown.
        last_bin_ratio: of the bins, see `predictor.targets.bin_edges`.
    """

    title: str
    ema_L: np.ndarray
    num_seen: int
    means_NH: np.ndarray
    first_step: float = 0.0
    step_width: float = 1.0
    target: float | None = None
    last_bin_ratio: float = 1.0


def plain_log_scale(axes: Axes) -> None:
    """A logarithmic loss axis with plain numbers at 1, 2 and 5."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


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
            axes.set_xlim(0, bank.length_points - 1)
            plain_log_scale(axes)
            axes.set_title(f"{name}\n{label(str(bank.set[rows[0]]))}, {len(learned)} curves", loc="left")
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
            Line2D([], [], color=VERMILION, lw=1.2, label="lowest so far, in truth"),
            Line2D([], [], color=BLUE, lw=1.2, label="median forecast"),
            Patch(color=BLUE, alpha=0.35, label="50 % band"),
            Patch(color=BLUE, alpha=0.15, label="90 % band"),
            Line2D([], [], color=GREEN, lw=1.2, ls="--", label="target"),
        ]
        figure.legend(
            handles=handles, loc="outside upper center", ncols=6, columnspacing=1.0, handlelength=1.4
        )
        png = to_png(figure)
    samples = fans[0].means_NH.shape[0] if fans else 0
    caption = (
        "Forecasts for test curves the predictor was not trained on. Black is what it saw; the bands hold the"
        f" middle 50 % and 90 % of its {samples} sampled futures of the lowest loss so far; red is what"
        " happened. A task is finished where that first meets its target (green), so a sampled future gives a"
        " sampled finishing time."
    )
    alt = f"{len(fans)} loss curves with forecast bands: " + "; ".join(fan.title for fan in fans) + "."
    return Picture("fans", "What the predictor expects", caption, alt, png)


def outside_fan(fan: Fan) -> bytes:
    """One forecast of a training from elsewhere, whose future nobody knows; a PNG."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
        _draw_fan(axes, fan)
        axes.set_xlabel("step")
        axes.set_ylabel("smoothed training loss (log)")
        handles = [
            Line2D([], [], color="black", lw=1.6, label="seen"),
            Line2D([], [], color=BLUE, lw=1.2, label="median forecast"),
            Patch(color=BLUE, alpha=0.35, label="50 % band"),
            Patch(color=BLUE, alpha=0.15, label="90 % band"),
            Line2D([], [], color=GREEN, lw=1.2, ls="--", label="target"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=5, columnspacing=1.2)
        return to_png(figure)


def _draw_fan(axes: Axes, fan: Fan) -> None:
    num_seen, length = fan.num_seen, len(fan.ema_L)
    edge_E = bin_edges(fan.means_NH.shape[1], fan.last_bin_ratio)
    # A bin's mean stands at the middle of its steps; the fan starts from the lowest loss seen.
    step_H = num_seen - 1 + np.concatenate([[0.0], bin_middles(edge_E) * (length - num_seen) + 0.5])
    lowest_L = np.minimum.accumulate(fan.ema_L)
    path_NH = np.concatenate([np.full((len(fan.means_NH), 1), lowest_L[num_seen - 1]), fan.means_NH], axis=1)
    step_H, past_L = (fan.first_step + fan.step_width * x for x in (step_H, np.arange(length)))
    low90, low50, median, high50, high90 = np.quantile(path_NH, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    axes.fill_between(step_H, low90, high90, color=BLUE, alpha=0.15, lw=0)
    axes.fill_between(step_H, low50, high50, color=BLUE, alpha=0.35, lw=0)
    axes.plot(step_H, median, color=BLUE, lw=1.2)
    axes.plot(past_L[num_seen - 1 :], fan.ema_L[num_seen - 1 :], color=VERMILION, lw=0.7, alpha=0.6)
    axes.plot(past_L[num_seen - 1 :], lowest_L[num_seen - 1 :], color=VERMILION, lw=1.2)
    axes.plot(past_L[:num_seen], fan.ema_L[:num_seen], color="black", lw=1.6)
    axes.axvline(past_L[num_seen - 1], color="#888888", lw=0.8, ls=":")
    if fan.target is not None:
        axes.axhline(fan.target, color=GREEN, lw=1.2, ls="--")
    axes.set_xlim(past_L[0], past_L[-1])
    plain_log_scale(axes)
    axes.set_title(fan.title, loc="left")
