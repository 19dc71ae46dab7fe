"""The picture of a sweep: leads over LARA along each axis."""

from __future__ import annotations

from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mara_ray.evaluation.plots import (
    BLUE,
    GREEN,
    METHOD_COLOURS,
    ORANGE,
    PURPLE,
    SKY,
    STYLE,
    Picture,
    small_multiples,
    to_png,
)
from mara_ray.evaluation.tables import BOUNDS, MEAN, REFERENCE, in_order, label

SPARE_COLOURS = (PURPLE, GREEN, SKY, ORANGE, BLUE)  # for methods without a colour of their own
MARKERS = "os^vDP*X"
LOAD = "load"


def lead_figure(leads: pd.DataFrame, axes: list[str]) -> Picture | None:
    """Lines with 95 % bands, a panel for each axis (and for the load, if there are several).

    A panel holds the cells that are like the first one on all other axes.

    Args:
        leads: see `leads.leads_of`.
        axes: columns that the sweep varied.

    Returns:
        None if LARA did not play, or nothing was varied.
    """
    means = leads[(leads["set"] == MEAN) & ~leads["method"].isin([*BOUNDS, REFERENCE])]
    varied = [axis for axis in (*axes, LOAD) if means[axis].nunique() > 1]
    if "lead" not in leads or means.empty or not varied:
        return None
    methods = in_order(means["method"].unique())
    spare = cycle(SPARE_COLOURS)
    colours = {name: METHOD_COLOURS.get(name) or next(spare) for name in methods}
    first = means.iloc[0]
    with plt.rc_context(STYLE):
        figure, panels = small_multiples(len(varied), 3.4)
        for panel, axis in zip(panels, varied, strict=True):
            others = [other for other in varied if other != axis]
            lines = means[(means[others] == first[others]).all(axis=1)]
            ticks = list(dict.fromkeys(lines[axis]))
            place = _places(ticks)
            for number, name in enumerate(methods):
                line = lines[lines["method"] == name]
                x = line[axis].map(place).to_numpy(float)
                order = np.argsort(x)
                x, line = x[order], line.iloc[order]
                colour, marker = colours[name], MARKERS[number % len(MARKERS)]
                panel.fill_between(x, line["lead_low"], line["lead_high"], color=colour, alpha=0.12, lw=0)
                panel.plot(x, line["lead"], label=label(name), marker=marker, ms=4, lw=1.3, color=colour)
            panel.axhline(0, color="black", lw=0.9)
            panel.set_xticks([place[tick] for tick in ticks], [str(tick) for tick in ticks])
            panel.set_xlabel(axis.rpartition(".")[2].replace("_", " "))
        lows, highs = zip(*(panel.get_ylim() for panel in panels), strict=True)
        for panel in panels:
            panel.set_ylim(min(lows), max(highs))
        panels[0].set_ylabel(f"lead over {label(REFERENCE)}, points")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
        png = to_png(figure)
    caption = (
        f"Lead over {label(REFERENCE)} in points of completion, mean over the sets, with 95 % bands, on the"
        f" same frozen episodes. {label(REFERENCE)} is played in each cell, too: the line at 0 is not its"
        " level in the first."
    )
    alt = f"Lines of the lead over LARA of {', '.join(map(label, methods))}, along {', '.join(varied)}."
    return Picture("leads", "Who leads LARA by how much?", caption, alt, png)


def _places(ticks: list[object]) -> dict[object, float]:
    """Where the values of an axis stand: at their numbers if they are such, else side by side."""
    try:
        return {tick: float(str(tick)) for tick in ticks}
    except ValueError:
        return {tick: float(number) for number, tick in enumerate(ticks)}
