"""Random play in random worlds, legal and illegal, at length: the rules that must hold whatever is done."""

import numpy as np
import pytest

from mara_ray.config import SimulatorConfig
from mara_ray.errors import UserError
from mara_ray.simulator.engine import Simulator
from tests.toy_worlds import random_replay, random_workload

NUM_EPISODES, STEPS, NUM_TASKS = 200, 50, 25


def random_world(rng):
    num_nodes = int(rng.integers(1, 6))
    costs = rng.choice([0, 0, 1, 3], 2).tolist()
    config = SimulatorConfig(
        num_nodes=num_nodes,
        num_slots=int(rng.integers(1, 10)),
        overflow=str(rng.choice(["defer", "drop"])),
        node_speeds=tuple(rng.choice([0.5, 1.0, 2.0], num_nodes).tolist()) if rng.random() < 0.5 else None,
        switch_cost_steps=costs[0],
        migration_cost_steps=costs[1],
        loss_noise=float(rng.choice([0.0, 0.3])),
    )
    simulator = Simulator(config, STEPS, random_replay(rng))
    simulator.reset(random_workload(rng, simulator.replay, NUM_EPISODES, NUM_TASKS, STEPS))
    return simulator


def random_matchings(rng, active_BK, num_nodes):
    """Of every episode, a random matching; a few nodes idle for no reason."""
    key_BK = rng.random(active_BK.shape) + ~active_BK
    slot_BK = np.where(np.sort(key_BK) < 0.85, np.argsort(key_BK) + 1, 0)
    slot_BM = np.pad(slot_BK, ((0, 0), (0, num_nodes)))[:, :num_nodes]
    return rng.permuted(slot_BM, axis=1)


def is_matching(action_M, active_K):
    served = [slot for slot in action_M.tolist() if slot != 0]
    in_range = all(1 <= slot <= len(active_K) and active_K[slot - 1] for slot in served)
    return in_range and len(set(served)) == len(served)


def proposal(rng, action_BM, num_slots):
    """The action with something changed in one episode, which then is a matching or is not."""
    proposed_BM, episode = action_BM.copy(), int(rng.integers(len(action_BM)))
    proposed_BM[episode, rng.integers(action_BM.shape[1])] = rng.integers(-1, num_slots + 2)
    return proposed_BM, episode


def written(state):
    nodes = [state.waiting_BJ, state.node_slot_BM, state.node_delay_BM]
    return [state.slots._integers, state.slots._reals, *nodes, *vars(state.outcomes).values()]


def assert_refused(simulator, action_BM, episode):
    before = [array.copy() for array in written(simulator.state)]
    with pytest.raises(UserError, match=rf"in episode {episode} at step {simulator.state.time} ") as caught:
        simulator.step(action_BM)
    assert "\n" not in str(caught.value)
    after = written(simulator.state)
    assert all((old == new).all() for old, new in zip(before, after, strict=True)), "nothing has moved"


def service_of(simulator):
    """Points of service that each task has received, (B, J)."""
    slots, service_BJ = simulator.state.slots, simulator.state.outcomes.service_BJ.copy()
    episode, slot = np.nonzero(slots.task >= 0)
    service_BJ[episode, slots.task[episode, slot]] = slots.service[episode, slot]
    return service_BJ


def assert_service_is_conserved(simulator, before_BJ, given_BJ, free):
    """What a task gets is what its node gives, or nothing while the node is switching or the task moving."""
    gained_BJ = service_of(simulator) - before_BJ
    served_BJ = gained_BJ == given_BJ
    assert (served_BJ | (gained_BJ == 0)).all()
    assert served_BJ.all() or not free
    return (~served_BJ).sum(1)


def play(rng):
    """One batch of episodes; counts refused proposals and completions."""
    simulator = random_world(rng)
    config, workload = simulator.config, simulator.workload
    costs = config.switch_cost_steps + config.migration_cost_steps
    lost_at_start_B = workload.num_tasks_B - (workload.real_BJ & (workload.arrival_BJ > 0)).sum(1)
    lost_at_start_B -= (simulator.state.slots.task >= 0).sum(1) + simulator.state.waiting_BJ.sum(1)
    reward_B, completed_B, expired_B, idle_B = np.zeros((4, NUM_EPISODES))
    num_refused = 0
    while not simulator.done:
        task_BK = simulator.state.slots.task.copy()
        action_BM = random_matchings(rng, task_BK >= 0, config.num_nodes)
        proposed_BM, episode = proposal(rng, action_BM, config.num_slots)
        if is_matching(proposed_BM[episode], task_BK[episode] >= 0):
            action_BM = proposed_BM
        else:
            assert_refused(simulator, proposed_BM, episode)
            num_refused += 1
        before_BJ, given_BJ = service_of(simulator), np.zeros(workload.real_BJ.shape)
        busy, node = np.nonzero(action_BM)
        given_BJ[busy, task_BK[busy, action_BM[busy, node] - 1]] = simulator.node_speed_M[node]
        outcome = simulator.step(action_BM)
        idle_B += assert_service_is_conserved(simulator, before_BJ, given_BJ, free=costs == 0)
        reward_B += outcome.reward_B
        completed_B += outcome.num_completed_B
        expired_B += outcome.num_expired_B
    finished_BJ = simulator.state.outcomes.finished_BJ
    met_BJ = finished_BJ >= 0
    assert (idle_B <= costs * simulator.state.outcomes.switches_B).all()
    assert (finished_BJ < np.minimum(workload.deadline_BJ, STEPS))[met_BJ].all(), "none after its deadline"
    assert (finished_BJ >= workload.arrival_BJ)[met_BJ].all()
    assert (met_BJ.sum(1) == completed_B).all()
    assert (lost_at_start_B + completed_B + expired_B == workload.num_tasks_B).all(), "every task counts once"
    np.testing.assert_allclose(reward_B, completed_B, rtol=0, atol=1e-6)
    return num_refused, int(completed_B.sum())


def test_a_million_random_steps_keep_the_rules():
    rng = np.random.default_rng(0)
    batches = [play(rng) for _ in range(1_000_000 // (NUM_EPISODES * STEPS))]
    num_refused, num_completed = np.sum(batches, axis=0)
    assert num_refused > 0.25 * len(batches) * STEPS
    assert num_completed > 0.1 * len(batches) * NUM_EPISODES * NUM_TASKS / 2
