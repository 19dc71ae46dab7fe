"""Pictures of how good forecasts are: the error against the prefix's length, and reliability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from mara_ray.evaluation.plots import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    STYLE,
    VERMILION,
    Picture,
    small_multiples,
    to_png,
)
from mara_ray.evaluation.tables import in_order, label

PREDICTOR_COLOURS = {
    "fm": BLUE,
    "wls": VERMILION,
    "quantile": GREEN,
    "hazard": PURPLE,
    "power": ORANGE,
    "laira": SKY,
}


def error_by_prefix(evaluation: Mapping[str, Any]) -> Picture:
    """Capped error against the points seen, a panel for each set."""
    by_predictor = _without_oracle(evaluation["prefix"])
    with plt.rc_context(STYLE):
        figure, panels = _panels(by_predictor)
        for set_name, axes in panels.items():
            for name, sets in by_predictor.items():
                curve = sets[set_name]
                axes.plot(curve["from"], curve["capped_mae"], "o-", ms=3, lw=1.3, **_style(name))
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_ylim(bottom=0)
            axes.set_title(label(set_name), loc="left")
        figure.supxlabel("points seen, from", fontsize=9)
        figure.supylabel("capped error, steps", fontsize=9)
        png = _finished(figure, panels)
    caption = (
        "Mean error of the steps still needed on test curves, against the points seen; a dot stands for the"
        " prefixes from its length to the next dot's. The error is counted up to the remaining cap, which"
        " shrinks as points are seen."
    )
    names = ", ".join(map(label, by_predictor))
    return Picture("prefix", "Error against what was seen", caption, f"Falling error lines of {names}.", png)


def reliability(evaluation: Mapping[str, Any]) -> Picture:
    """How often what was forecast with a probability came true, a panel for each set."""
    by_predictor = {
        name: sets
        for name, sets in _without_oracle(evaluation["reliability"]).items()
        if any(len(curve["cases"]) > 2 for curve in sets.values())  # point forecasts know yes and no alone
    }
    with plt.rc_context(STYLE):
        figure, panels = _panels(by_predictor)
        for set_name, axes in panels.items():
            axes.plot([0, 100], [0, 100], color="#888888", lw=0.8, ls="--")
            for name, sets in by_predictor.items():
                curve = sets[set_name]
                shares = 100 * np.array([curve["forecast"], curve["happened"]])
                axes.plot(*shares, "o-", ms=3, lw=1.3, **_style(name))
            axes.set_xlim(0, 100)
            axes.set_ylim(0, 100)
            axes.set_aspect("equal")
            axes.set_title(label(set_name), loc="left")
        figure.supxlabel("forecast probability of success in a window, %", fontsize=9)
        figure.supylabel("happened, %", fontsize=9)
        png = _finished(figure, panels)
    caption = (
        "Of the windows in which a forecast gave a task some probability to end, the share in which it did,"
        " in eighths of probability. On the dashed line a forecast means what it says; under it, it is too"
        " sure of success."
    )
    names = ", ".join(map(label, by_predictor))
    alt = f"Reliability of {names} against the diagonal."
    return Picture("reliability", "Do the probabilities hold?", caption, alt, png)


def _without_oracle(by_predictor: Mapping[str, Any]) -> dict[str, Any]:
    return {name: by_predictor[name] for name in in_order(by_predictor) if name != "oracle"}


def _panels(by_predictor: Mapping[str, Any]) -> tuple[plt.Figure, dict[str, Axes]]:
    set_names = in_order(next(iter(by_predictor.values())))
    figure, panels = small_multiples(len(set_names), 2.4)
    return figure, dict(zip(set_names, panels, strict=True))


def _finished(figure: plt.Figure, panels: Mapping[str, Axes]) -> bytes:
    handles, labels = next(iter(panels.values())).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, columnspacing=1.2)
    return to_png(figure)


def _style(name: str) -> dict[str, Any]:
    return {"color": PREDICTOR_COLOURS.get(name, "#555555"), "label": label(name)}
