"""The rule that sets the workloads: LARA leads if it can, and is nearest to what is wanted."""

from __future__ import annotations

import pandas as pd
import pytest

from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.experiments import calibration
from mara_ray.progress import silent


def rows_of(*settings: tuple[float, int, float, float, float]) -> pd.DataFrame:
    """Settings of least fraction, window, and LARA at the first load: completion, lead, and its low end."""
    columns = ["least_fraction", "window", "lara", "lead", "lead_low"]
    return pd.DataFrame(list(settings), columns=columns).assign(load=0.04)


def test_lara_leads_beyond_chance_where_it_can() -> None:
    rows = rows_of((0.3, 100, 54.9, 0.4, -0.1), (0.3, 200, 50.0, 1.0, 0.2), (0.2, 300, 70.0, 3.0, 1.0))
    assert calibration.choose(rows) == (0.3, 200)


def test_a_lead_that_may_be_chance_is_better_than_none() -> None:
    rows = rows_of((0.3, 100, 54.9, -0.4, -0.9), (0.3, 200, 50.0, 0.3, -0.2))
    assert calibration.choose(rows) == (0.3, 200)


def test_the_nearest_where_lara_never_leads() -> None:
    rows = rows_of((0.3, 100, 54.0, -6.0, -9.0), (0.3, 200, 50.0, -1.0, -3.0))
    assert calibration.choose(rows) == (0.3, 100)


def test_settings_are_played_on_curves_of_no_test(
    toy_bank: CurveBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "WINDOWS", (10, 40))
    monkeypatch.setattr(calibration, "LEAST_FRACTIONS", (0.3,))
    monkeypatch.setattr(calibration, "EPISODES", 6)
    overrides = ["workload.episode_steps=80", "simulator.num_nodes=2", "simulator.num_slots=4"]
    config = load_config("quick", overrides)
    rows = calibration.play_settings(config, toy_bank, silent)
    assert len(rows) == 2 * len(calibration.LOADS)
    assert rows[["lara", "edf", "fifo"]].stack().between(0, 100).all()
    assert (rows["lead_low"] <= rows["lead_high"]).all()
    by_window = rows.groupby("window")["lara"].mean()
    assert by_window[40] > by_window[10], "wider windows let more tasks finish"
    test_rows = toy_bank.rows("id", "test")
    changed = toy_bank.ema_CL.copy()
    changed[test_rows] *= 0.5
    other = CurveBank(
        **{name: getattr(toy_bank, name) for name in toy_bank.__dataclass_fields__ if name != "ema_CL"},
        ema_CL=changed,
    )
    pd.testing.assert_frame_equal(calibration.play_settings(config, other, silent), rows)
