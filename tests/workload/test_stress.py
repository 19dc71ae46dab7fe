"""The stress test's numbers, shown by playing it in the engine."""

import numpy as np
import pytest

from mara_ray import pretrained
from mara_ray.allocator.lara import LARA
from mara_ray.allocator.queueing import EDF, FIFO
from mara_ray.config import SimulatorConfig, WorkloadConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.evaluation.bounds import clairvoyant_optimum
from mara_ray.evaluation.metrics import episode_tasks
from mara_ray.evaluation.rollout import rollout
from mara_ray.predictor.forecast import OraclePredictor
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.losses import TaskLosses
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.stress import feasible_alone, stress_family, stress_test

CONFIG = WorkloadConfig(window_steps=100)


class OracleForecasts:
    def __init__(self, replay, rows):
        self.steps_CLGN = np.zeros((*replay.ema_CL.shape, replay.target_CG.shape[1], 1), np.uint16)
        self.steps_CLGN[rows] = OraclePredictor().predict_curves(replay.ema_CL[rows], replay.target_CG[rows])

    def lookup(self, curve, num_seen, level):
        return self.steps_CLGN[curve, num_seen - 1, level].astype(np.float32)


@pytest.fixture(scope="module", params=["toy", "standard"])
def world(request, toy_bank):
    bank = toy_bank if request.param == "toy" else CurveBank.read(pretrained.BANK)
    replay = CurveReplay.from_bank(bank, CONFIG.target_fractions)
    rows = bank.rows("id", "test")
    return replay, rows, OracleForecasts(replay, rows)


def completed(world, allocator, workload, steps=500):
    replay, _, forecasts = world
    played = rollout(Simulator(SimulatorConfig(), steps, replay), forecasts, allocator, workload)
    return (played.outcomes.finished_BJ >= 0).sum(1).tolist()


@pytest.mark.parametrize("steps", [205, 500])
def test_of_20_tasks_13_are_feasible_fifo_and_edf_do_none_and_the_oracle_all_13(world, steps):
    replay, rows, _ = world
    workload = stress_test(replay.points_needed_CG, rows, 4, seed=0)
    assert workload.num_tasks_B.tolist() == [20] * 4
    assert feasible_alone(workload, replay.points_needed_CG).sum(1).tolist() == [13] * 4
    assert completed(world, FIFO(), workload, steps) == [0] * 4
    assert completed(world, EDF(), workload, steps) == [0] * 4
    assert completed(world, LARA(), workload, steps) == [13] * 4
    needed_BJ = TaskLosses.frozen(replay, workload).points_needed_BJ
    optimum = clairvoyant_optimum(episode_tasks(workload, needed_BJ, 0), np.ones(4), 20.0)
    assert optimum.proven and optimum.upper == 13


def test_the_seed_draws_the_curves_and_leaves_the_times(world):
    replay, rows, _ = world
    one, other = (stress_test(replay.points_needed_CG, rows, 2, seed) for seed in (0, 1))
    assert (one.arrival_BJ == other.arrival_BJ).all() and (one.deadline_BJ == other.deadline_BJ).all()
    assert (one.curve_BJ != other.curve_BJ).any()
    assert np.isin(one.curve_BJ, rows).all()


@pytest.mark.parametrize("share", [0.3, 0.65, 0.9])
def test_the_family_has_the_share_it_is_asked_for(world, share):
    replay, rows, _ = world
    workload = stress_family(CONFIG, replay.points_needed_CG, rows, share, 12, seed=0)
    feasible_B = feasible_alone(workload, replay.points_needed_CG).sum(1)
    assert feasible_B.tolist() == [round(20 * share)] * 12
    assert (workload.deadline_BJ <= 500).all()
    oracle, fifo = (np.array(completed(world, a, workload)) for a in (LARA(), FIFO()))
    assert (oracle <= feasible_B).all() and (fifo <= feasible_B).all()
    assert oracle.sum() > 0.9 * feasible_B.sum()
    assert oracle.sum() >= fifo.sum()
    places = [np.flatnonzero(f) for f in feasible_alone(workload, replay.points_needed_CG)]
    assert len({tuple(place) for place in places}) > 1, "the order is random"


def test_a_stress_test_that_cannot_be_drawn_is_refused(world):
    replay, rows, _ = world
    needed_CG = replay.points_needed_CG
    with pytest.raises(UserError, match=r"stress: a feasible share of 0.95 is not in 0.3..0.9"):
        stress_family(CONFIG, needed_CG, rows, 0.95, 1, 0)
    short = CONFIG.model_copy(update={"episode_steps": 100})
    with pytest.raises(UserError, match=r"workload.episode_steps: 100 is too short"):
        stress_family(short, needed_CG, rows, 0.5, 1, 0)
    with pytest.raises(UserError, match=r"no curve and target level need 201 or more steps"):
        stress_test(np.full_like(needed_CG, 30), rows, 1, 0)
    with pytest.raises(UserError, match=r"no curve and target level need 20..35 steps"):
        stress_test(np.full_like(needed_CG, 1000), rows, 1, 0)
