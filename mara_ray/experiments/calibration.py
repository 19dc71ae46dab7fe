"""How tight deadlines and targets should be: the setting of the workloads, fixed once, before any comparison.

Played on the ID curves of training and validation alone, by FIFO, EDF and LARA alone.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from mara_ray.allocator.methods import method_named
from mara_ray.config import RunConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.rollout import rollout
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import Report
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import draw_workload

METHODS = ("lara", "edf", "fifo")
WINDOWS = (75, 100, 125, 150, 175, 200, 250, 300)  # D0
LEAST_FRACTIONS = (0.2, 0.3, 0.4)  # of the log-drop; the greatest is 1.05
LOADS = (0.04, 0.05, 0.06, 0.07)
WANTED = 55.0  # percent of tasks that LARA finishes at the first load
EPISODES = 60


def play_settings(config: RunConfig, bank: CurveBank, report: Report) -> pd.DataFrame:
    """Completion in percent under every setting: rows of least_fraction, window, load, method, completion."""
    used = np.concatenate([bank.rows("id", "train"), bank.rows("id", "validation")])
    curves = bank.take(used)
    settings = list(product(LEAST_FRACTIONS, WINDOWS))
    rows = []
    for number, (least, window) in enumerate(settings):
        fractions = tuple(np.round(np.arange(least, 1.051, 0.05), 2).tolist())
        workload_config = config.workload.model_copy(
            update={"window_steps": window, "target_fractions": fractions}
        )
        replay = CurveReplay.from_bank(curves, fractions)
        table = ForecastTable.of(WLSPredictor(config.predictor.warmup_points), curves, replay.target_CG)
        simulator = Simulator(config.simulator, workload_config.episode_steps, replay)
        for load in LOADS:
            place = ("calibration", f"{load:g}")
            workload = draw_workload(
                workload_config, np.arange(len(curves)), load, EPISODES, config.seed, *place
            )
            for name in METHODS:
                make = method_named(name).make
                assert make is not None
                played = rollout(simulator, table, make(), workload)
                done = (played.outcomes.finished_BJ >= 0).sum() / workload.num_tasks_B.sum()
                rows.append((least, window, load, name, 100 * float(done)))
        report(number + 1, len(settings), f"targets from {least:g}, windows of {window}")
    return pd.DataFrame(rows, columns=["least_fraction", "window", "load", "method", "completion"])


def choose(rows: pd.DataFrame) -> tuple[float, int]:
    """The setting: LARA leads both others at the first load if it does anywhere, and is nearest to `WANTED`.

    Returns:
        Least fraction and window.
    """
    first = rows[rows["load"] == LOADS[0]].pivot(
        index=["least_fraction", "window"], columns="method", values="completion"
    )
    leads = first["lara"] > first[["edf", "fifo"]].max(axis=1)
    candidates = first[leads] if leads.any() else first
    nearest = candidates.index[int((candidates["lara"] - WANTED).abs().to_numpy().argmin())]
    return float(nearest[0]), int(nearest[1])
