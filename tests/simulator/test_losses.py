"""Run-time noise: what is observed and tested against the target changes, the targets do not."""

import numpy as np
import pytest

from mara_ray.config import SimulatorConfig
from mara_ray.curves.bank import first_crossing, smooth
from mara_ray.errors import UserError
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.losses import TaskLosses
from mara_ray.simulator.observe import observe
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import PADDING, Workload
from tests.toy_worlds import ZeroForecasts, halving_replay, one_episode

TASKS = (0, 9, 1), (0, 9, 2), (3, 9, 1)


def noisy_replay(length=40):
    raw_CL = np.linspace(2, 1, length, dtype=np.float32)[None]
    ema_CL = smooth(raw_CL)
    target_CG = ema_CL[:, [5, 9, 15]]
    return CurveReplay(ema_CL, target_CG, first_crossing(ema_CL, target_CG), raw_CL)


def test_noise_has_the_configured_size_and_each_task_its_own():
    replay, workload = noisy_replay(2000), one_episode(*TASKS)
    losses = TaskLosses.noisy(replay, workload, 1e-3, 7)
    assert losses.row_BJ.tolist() == [[0, 1, 2]]
    first_point_R = np.log(losses.ema_RL[:, 0] / replay.ema_CL[0, 0])
    assert len(set(first_point_R.tolist())) == 3
    # A smoothed point averages 0.1 / 1.9 of the variance of the raw ones.
    late_RL = np.log(losses.ema_RL[:, 200:] / replay.ema_CL[0, 200:])
    assert late_RL.std() == pytest.approx(1e-3 * np.sqrt(0.1 / 1.9), rel=0.15)


def test_the_target_is_tested_on_the_noisy_loss():
    replay, workload = noisy_replay(), one_episode(*TASKS)
    losses = TaskLosses.noisy(replay, workload, 0.2, 0)
    for task, (_, _, level) in enumerate(TASKS):
        met = losses.ema_RL[task] <= replay.target_CG[0, level]
        assert losses.points_needed_BJ[0, task] == met.argmax() + 1
    assert losses.points_needed_BJ[0].tolist() != replay.points_needed_CG[0, [1, 2, 1]].tolist()
    simulator = Simulator(SimulatorConfig(num_nodes=1, num_slots=1, loss_noise=0.2), 9, replay)
    simulator.reset(one_episode((0, 9, 0)))
    observation = observe(simulator, ZeroForecasts())
    assert observation.loss_BK[0, 0] == observation.initial_loss_BK[0, 0] != replay.ema_CL[0, 0]
    assert observation.target_BK[0, 0] == replay.target_CG[0, 0]


def test_the_seed_decides_and_the_batch_does_not():
    replay, workload = noisy_replay(), one_episode(*TASKS)
    one, same, other = (TaskLosses.noisy(replay, workload, 0.2, seed).ema_RL for seed in (0, 0, 1))
    assert (one == same).all() and (one != other).any(1).all()
    twice = workload.take(np.array([0, 0]))
    assert (TaskLosses.noisy(replay, twice, 0.2, 0).ema_RL[3:] == one).all()


def test_a_workload_without_tasks_has_no_noise():
    padding_11 = np.full((1, 1), PADDING, np.int32)
    empty = Workload(*[padding_11] * 4, num_tasks_B=np.zeros(1, np.int32))
    simulator = Simulator(SimulatorConfig(num_nodes=1, num_slots=1, loss_noise=0.2), 9, noisy_replay())
    simulator.reset(empty)
    assert simulator.step(np.array([[0]])).reward_B.tolist() == [0.0]


def test_noise_needs_raw_losses():
    simulator = Simulator(SimulatorConfig(loss_noise=0.1), 9, halving_replay())
    with pytest.raises(UserError, match=r"simulator.loss_noise: these curves have no raw losses"):
        simulator.reset(one_episode(*TASKS))
