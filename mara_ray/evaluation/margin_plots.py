"""The picture of margins over LARA as switching and unlike nodes cost more and more."""

from __future__ import annotations

import matplotlib.pyplot as plt
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
from mara_ray.evaluation.tables import REFERENCE, in_order, label

SETTINGS = {
    "switch_cost": "steps lost when a\nnode changes its task",
    "migration_cost": "steps lost when a\ntask changes its node",
    "speed_spread": "spread of node\nspeeds around 1",
}
SPARE_COLOURS = (PURPLE, GREEN, SKY, ORANGE, BLUE)  # for methods without a colour of their own
MARKERS = "os^vDP*X"


def margin_figure(margins: pd.DataFrame) -> Picture:
    """Lines with 95 % bands, a panel for each setting.

    Args:
        margins: columns setting, value, method, points, low and high; see `experiments.margins`.
    """
    methods = [name for name in in_order(margins["method"].unique()) if name != REFERENCE]
    spare = iter(SPARE_COLOURS * len(methods))
    colours = {name: METHOD_COLOURS.get(name) or next(spare) for name in methods}
    with plt.rc_context(STYLE):
        figure, panels = small_multiples(len(SETTINGS), 3.4)
        for axes, (setting, text) in zip(panels, SETTINGS.items(), strict=True):
            for number, name in enumerate(methods):
                line = margins[(margins["setting"] == setting) & (margins["method"] == name)]
                line = line.sort_values("value")
                axes.fill_between(
                    line["value"], line["low"], line["high"], color=colours[name], alpha=0.12, lw=0
                )
                marker = MARKERS[number % len(MARKERS)]
                axes.plot(
                    line["value"],
                    line["points"],
                    label=label(name),
                    marker=marker,
                    ms=4,
                    lw=1.3,
                    color=colours[name],
                )
            axes.axhline(0, color="black", lw=0.9)
            axes.set_xlabel(text)
            if axes is not panels[0]:
                axes.sharey(panels[0])
        panels[0].set_ylabel(f"lead over {label(REFERENCE)}, points")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
        png = to_png(figure)
    caption = (
        f"Lead over {label(REFERENCE)} in points of completion, mean over the sets, with 95 % bands, on the"
        " same frozen episodes. LARA pays the costs, too: the line at 0 is not LARA without them."
    )
    alt = f"Lines of the lead over LARA of {', '.join(map(label, methods))}."
    return Picture("margins", "Do the margins survive real costs?", caption, alt, png)
