"""Margins over LARA from rows whose numbers are known, and the pools of nodes that are played."""

from __future__ import annotations

import pandas as pd
import pytest

from mara_ray.config import load_config
from mara_ray.evaluation.margin_plots import margin_figure
from mara_ray.experiments.margins import margins_of, variants


def known_rows() -> pd.DataFrame:
    """Ten tasks an episode: LARA finishes 5, FIFO 4 and 1 less for each step of switching, on both sets."""
    return pd.DataFrame(
        [
            {
                "setting": setting, "value": value, "method": method, "set": set_name, "load": 0.04,
                "root": root, "episode": episode, "training_seed": -1, "tasks": 10,
                "completed": 5 if method == "lara" else 4 - value,
            }
            for setting in ("switch_cost", "migration_cost", "speed_spread")
            for value in (0, 1, 2)
            for method in ("lara", "fifo")
            for set_name in ("id", "vit")
            for root in range(2)
            for episode in range(3)
        ]
    )  # fmt: skip


def test_margins_by_hand() -> None:
    margins = margins_of(known_rows(), 0.04, 50, 0)
    fifo = margins[(margins["method"] == "fifo") & (margins["setting"] == "switch_cost")]
    assert fifo["points"].tolist() == pytest.approx([-10, -20, -30])
    assert fifo["low"].tolist() == fifo["high"].tolist() == pytest.approx([-10, -20, -30])
    assert (margins[margins["method"] == "lara"]["points"] == 0).all()
    assert margin_figure(margins).png.startswith(b"\x89PNG")


def test_the_pools_that_are_played() -> None:
    played = variants(load_config("quick"))
    assert played["switch_cost", 0].simulator == load_config("quick").simulator
    assert played["switch_cost", 5].simulator.switch_cost_steps == 5
    speeds = played["speed_spread", 0.5].simulator.node_speeds
    assert played["speed_spread", 0].simulator == played["migration_cost", 0].simulator
    assert speeds is not None and sum(speeds) == pytest.approx(4) and min(speeds) == 0.5
