"""How tight deadlines and targets should be: the setting of the workloads, fixed once, before any comparison.

Played on the ID curves of training and validation alone, by FIFO, EDF and LARA alone.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from mara_ray.allocator.methods import method_named
from mara_ray.config import RunConfig, target_levels
from mara_ray.curves.bank import CurveBank
from mara_ray.evaluation.rollout import rollout
from mara_ray.evaluation.stats import Outcomes, draw_resampling, interval
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import Report
from mara_ray.seeding import generator
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import draw_workload

METHODS = ("lara", "edf", "fifo")
WINDOWS = (100, 125, 150, 175, 200, 250)  # D0
LEAST_FRACTIONS = (0.1, 0.2, 0.3, 0.4)  # of the log-drop; see `target_levels`
LOADS = (0.04, 0.05, 0.06, 0.07)
WANTED = 55.0  # percent of tasks that LARA finishes at the first load
EPISODES = 240
RESAMPLES = 2000


def play_settings(config: RunConfig, bank: CurveBank, report: Report) -> pd.DataFrame:
    """Completion in percent under every setting and load.

    Returns:
        Columns least_fraction, window, load, one of each method, and `lead`: LARA's over the better of the
        others, with its 95 % interval `lead_low`, `lead_high` over the episodes, which all methods share.
    """
    used = np.concatenate([bank.rows("id", "train"), bank.rows("id", "validation")])
    curves = bank.take(used)
    resampling = draw_resampling(
        1, {"id": (1, EPISODES)}, RESAMPLES, generator(config.seed, "calibration", "bootstrap")
    )
    settings = list(product(LEAST_FRACTIONS, WINDOWS))
    rows = []
    for number, (least, window) in enumerate(settings):
        fractions = target_levels(least)
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
            outcomes = {}
            for name in METHODS:
                make = method_named(name).make
                assert make is not None
                finished_BJ = rollout(simulator, table, make(), workload).outcomes.finished_BJ
                completed_B = (finished_BJ >= 0).sum(1).astype(np.float64)
                outcomes[name] = Outcomes(completed_B[None, None], workload.num_tasks_B[None].astype(float))
            replicate = {name: resampling.replicates("id", outcome) for name, outcome in outcomes.items()}
            completion = {name: outcome.completion for name, outcome in outcomes.items()}
            low, high = interval(replicate["lara"] - np.maximum(replicate["edf"], replicate["fifo"]))
            lead = completion["lara"] - max(completion["edf"], completion["fifo"])
            rows.append((least, window, load, *completion.values(), lead, low, high))
        report(number + 1, len(settings), f"targets from {least:g}, windows of {window}")
    return pd.DataFrame(
        rows, columns=["least_fraction", "window", "load", *METHODS, "lead", "lead_low", "lead_high"]
    )


def choose(rows: pd.DataFrame) -> tuple[float, int]:
    """The setting that is nearest to `WANTED` at the first load, among those where LARA leads.

    It leads where the whole interval of its lead lies above 0; failing that anywhere, where the lead does;
    failing that, too, all settings are candidates.

    Returns:
        Least fraction and window.
    """
    first = rows[rows["load"] == LOADS[0]].set_index(["least_fraction", "window"])
    for leads in (first["lead_low"] > 0, first["lead"] > 0, first["lead"].notna()):
        if leads.any():
            candidates = first[leads]
            break
    nearest = candidates.index[int((candidates["lara"] - WANTED).abs().to_numpy().argmin())]
    return float(nearest[0]), int(nearest[1])
