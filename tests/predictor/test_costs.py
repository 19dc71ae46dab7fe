"""Costs, each against another of the same run: a lookup in a table against a live forecast."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from mara_ray import pretrained
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.fitting import FlowTraining, make_predictor
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.progress import silent

CONFIG = load_config("standard")


def seconds(call: Callable[[], object], repeats: int) -> float:
    """CPU seconds of one call: the least of several."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return max(min(times), 1e-9)


def untrained(bank: CurveBank) -> FlowPredictor:
    training = FlowTraining(CONFIG.predictor, bank.ema_CL[:2], 0, torch.device("cpu"))
    return make_predictor(CONFIG.predictor, training.average, 0)


def test_a_table_is_built_fast_and_a_lookup_costs_next_to_nothing(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    bank = CurveBank.read(pretrained.BANK)
    predictor, rng = untrained(bank), np.random.default_rng(0)
    target_CG = bank.target_losses(CONFIG.workload.target_fractions)
    few = bank.rows("id", "test")[::40]
    built_s = seconds(lambda: predictor.predict_curves(bank.ema_CL[few], target_CG[few]), 2)
    per_minute = 60 * len(few) * bank.length_points / built_s
    print(f"{per_minute:,.0f} prefixes a minute and core, {target_CG.shape[1]} targets each")
    assert per_minute > 20_000  # seven times slower than on a quiet machine

    small = bank.take(few)
    table = ForecastTable.build(predictor, small, target_CG[few], tmp_path / "fm", silent)
    row, seen = rng.integers(0, len(few), 512), rng.integers(4, 300, 512)
    level = rng.integers(0, 16, 512)
    target_BG = target_CG[few][row, level][:, None]
    live_s = seconds(lambda: predictor.predict(small.ema_CL[row], seen, target_BG), 2)
    lookup_s = seconds(lambda: [table.lookup(row, seen, level) for _ in range(100)], 3) / 100
    print(f"a lookup costs 1/{live_s / lookup_s:,.0f} of a live forecast")
    assert lookup_s < live_s / 500
