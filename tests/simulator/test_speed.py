"""How fast the engine steps, and how far that is from merely copying its state. -s shows the figures."""

import time

import numpy as np
import pytest

from mara_ray.config import SimulatorConfig, WorkloadConfig
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import draw_workload

NUM_EPISODES, STEPS, ROUNDS = 64, 500, 5
FLOOR_ENV_STEPS_PER_S = 40_000  # a tenth of what one idle core does


def greedy_actions(simulator, workload):
    """The first M tasks in slot order, written down for every step before anything is timed."""
    simulator.reset(workload)
    num_nodes, actions = simulator.config.num_nodes, []
    while not simulator.done:
        active_BK = simulator.state.slots.task >= 0
        order_BM = np.argsort(~active_BK, axis=1, kind="stable")[:, :num_nodes]
        actions.append(np.where(np.take_along_axis(active_BK, order_BM, 1), order_BM + 1, 0))
        simulator.step(actions[-1])
    return actions


def arrays_of(state):
    """The blocks of memory that a step may write to."""
    nodes = [state.waiting_BJ, state.node_slot_BM, state.node_delay_BM]
    return [state.slots._integers, state.slots._reals, *nodes, *vars(state.outcomes).values()]


def best_env_steps_per_s(prepare, step, arguments):
    """Of some rounds, the one that the rest of the machine disturbed least."""
    seconds = []
    for _ in range(ROUNDS):
        prepare()
        start = time.perf_counter()
        for argument in arguments:
            step(argument)
        seconds.append(time.perf_counter() - start)
    return NUM_EPISODES * len(arguments) / min(seconds)


@pytest.mark.parametrize("load", [0.04, 0.07])
@pytest.mark.parametrize(
    "costs", [{}, {"switch_cost_steps": 1, "migration_cost_steps": 2, "loss_noise": 0.1}]
)
def test_the_engine_is_fast(toy_bank, load, costs):
    config = WorkloadConfig(window_steps=200)
    replay = CurveReplay.from_bank(toy_bank, config.target_fractions)
    workload = draw_workload(config, toy_bank.rows("id"), load, NUM_EPISODES, 0, "speed")
    simulator = Simulator(SimulatorConfig(num_nodes=4, num_slots=8, **costs), STEPS, replay)
    actions = greedy_actions(simulator, workload)
    speed = best_env_steps_per_s(lambda: simulator.reset(workload), simulator.step, actions)
    arrays = arrays_of(simulator.state)
    bare = best_env_steps_per_s(lambda: None, lambda _: [array.copy() for array in arrays], actions)
    print(f"\nload {load}, {costs}: {speed:,.0f} env-steps/s, {speed / bare:.2f} of a bare copy of the state")
    assert simulator.done
    assert speed > FLOOR_ENV_STEPS_PER_S
