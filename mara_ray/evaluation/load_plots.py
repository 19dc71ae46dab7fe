"""The picture of completion against the load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from mara_ray.evaluation.plots import (
    BOUND_STYLES,
    STYLE,
    Picture,
    method_styles,
    small_multiples,
    to_png,
)
from mara_ray.evaluation.result_tables import sets_of
from mara_ray.evaluation.tables import MEAN, in_order, label


def load_curves(loads: Mapping[str, Mapping[str, Any]]) -> Picture:
    """Completion of every method and reference level against the load, with 95 % bands, a panel for each set.

    Args:
        loads: the summary of every load; see `tables.summarise`.
    """
    first = next(iter(loads.values()))
    sets = sets_of(first)
    methods, bounds = in_order(first["methods"]), in_order(first["bounds"])
    with plt.rc_context(STYLE):
        figure, panels = small_multiples(len(sets), 3.0, columns=2)
        for axes, set_name in zip(panels, sets, strict=True):
            for name, style in method_styles(methods).items():
                _draw(axes, [summary["methods"][name][set_name] for summary in loads.values()], name, style)
            for name in bounds:
                level = [summary["bounds"][name][set_name]["completion"] for summary in loads.values()]
                axes.plot(level, color="black", lw=1.0, ls=BOUND_STYLES[name], label=label(name))
            axes.set_xticks(range(len(loads)), list(loads))
            axes.set_title(label(set_name), loc="left")
        figure.supxlabel("load: arrivals a step, p", fontsize=9)
        figure.supylabel("tasks finished on time, %", fontsize=9)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
        png = to_png(figure)
    caption = (
        "Completion against the load, with 95 % bands; black lines are reference levels. All methods meet the"
        " same episodes, so leads are known better than the bands suggest: read them in the table of"
        " differences."
    )
    means = ", ".join(
        f"{label(name)} " + " ".join(f"{s['methods'][name][MEAN]['completion']:.1f}" for s in loads.values())
        for name in methods
    )
    alt = f"Lines of completion at p = {', '.join(loads)}; mean over sets in percent: {means}."
    return Picture("loads", "As the load grows", caption, alt, png)


def _draw(axes: Axes, cells: list[Mapping[str, Any]], name: str, style: dict[str, Any]) -> None:
    low, high = np.array([cell["ci"] for cell in cells]).T
    axes.fill_between(range(len(cells)), low, high, color=style["color"], alpha=0.1, lw=0)
    axes.plot([cell["completion"] for cell in cells], label=label(name), ms=4, lw=1.2, **style)
