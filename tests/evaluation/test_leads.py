"""Leads over LARA from rows whose numbers are known, and their picture."""

from __future__ import annotations

import pandas as pd
import pytest

from mara_ray.evaluation.lead_plots import lead_figure
from mara_ray.evaluation.leads import leads_of


def known_rows() -> pd.DataFrame:
    """Ten tasks an episode: LARA finishes 5, FIFO 4 and 1 less for each step of switching, on both sets."""
    return pd.DataFrame(
        [
            {
                "sweep": "s", "cell": f"cost={cost}", "cost": cost, "method": method, "set": set_name,
                "load": 0.04, "root": root, "episode": episode, "training_seed": -1, "tasks": 10,
                "completed": 5 if method == "lara" else 4 - cost,
            }
            for cost in (0, 1, 2)
            for method in ("lara", "fifo")
            for set_name in ("id", "vit")
            for root in range(2)
            for episode in range(3)
        ]
    )  # fmt: skip


def test_leads_by_hand() -> None:
    leads = leads_of(known_rows(), 50, 0)
    assert list(leads.columns) == [
        "cell", "cost", "load", "method", "set", "completion", "low", "high", "lead", "lead_low", "lead_high"
    ]  # fmt: skip
    fifo = leads[(leads["method"] == "fifo") & (leads["set"] == "mean")]
    assert fifo["completion"].tolist() == pytest.approx([40, 30, 20])
    assert fifo["lead"].tolist() == pytest.approx([-10, -20, -30])
    assert fifo["lead_low"].tolist() == fifo["lead_high"].tolist() == pytest.approx([-10, -20, -30])
    assert (leads[leads["method"] == "lara"]["lead"] == 0).all()


def test_a_picture_where_something_is_varied_and_lara_played() -> None:
    leads = leads_of(known_rows(), 50, 0)
    picture = lead_figure(leads, ["cost"])
    assert picture is not None and picture.png.startswith(b"\x89PNG") and "along cost" in picture.alt
    assert lead_figure(leads[leads["cost"] == 0], ["cost"]) is None
    without = leads_of(known_rows().query("method != 'lara'"), 50, 0)
    assert "lead" not in without and lead_figure(without, ["cost"]) is None
