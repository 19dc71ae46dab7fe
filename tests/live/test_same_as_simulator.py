"""What is trained live ends as the simulator says, step by step, for every kind of allocator."""

import numpy as np
import pytest

from mara_ray import pretrained
from mara_ray.allocator.methods import METHODS
from mara_ray.live.outcome import outcome_of
from mara_ray.predictor.flow import FlowPredictor
from tests.live.live_worlds import method_of, play, simulated, small_world


@pytest.fixture(scope="module")
def world():
    return small_world()


@pytest.fixture(scope="module")
def flow():
    return FlowPredictor.load(pretrained.PREDICTOR)


@pytest.mark.parametrize("name", ["fifo", "edf", "lara", "lara_fm", "laira", "planner", "mara"])
def test_live_is_the_simulator(world, flow, tmp_path, name):
    bank, workload, jobs = world
    method = method_of(name, flow if METHODS[name].forecast == "fm" else None)
    run = play(jobs, method, tmp_path)
    played = simulated(bank, workload, method)
    outcomes, expected = run.pool.state.outcomes, played.outcomes
    assert (expected.finished_BJ >= 0).any() and (expected.finished_BJ[0] < 0).any()
    for field in ("finished_BJ", "started_BJ", "ready_BJ", "service_BJ"):
        np.testing.assert_array_equal(getattr(outcomes, field), getattr(expected, field), field)
    num_steps = len(run.node_task_TM)
    np.testing.assert_array_equal(run.node_task_TM, played.node_task_TBM[:num_steps, 0])
    met = [job["name"] for job in outcome_of(run)["jobs"] if job["status"] == "met"]
    assert met == [f"task{task}" for task in np.flatnonzero(expected.finished_BJ[0] >= 0)]


def test_live_losses_are_the_banks_to_the_bit(world, tmp_path):
    bank, workload, jobs = world
    run = play(jobs, method_of("fifo"), tmp_path)
    for task in range(len(jobs.jobs)):
        seen = run.pool.shown_J[task]
        assert seen >= 1
        np.testing.assert_array_equal(
            run.pool.losses.ema_RL[task, :seen], bank.ema_CL[workload.curve_BJ[0, task], :seen]
        )
    assert run.pool.shown_J.max() > 8
