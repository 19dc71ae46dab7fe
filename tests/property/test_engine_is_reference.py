"""The engine does what the readable reference says, on random workloads, configurations and actions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.config import SimulatorConfig
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.observe import observe
from mara_ray.simulator.reference import ReferenceSimulator
from tests.toy_worlds import ZeroForecasts, random_replay, random_workload


def random_matching(rng, active_BK, num_nodes):
    """A random matching that now and then leaves a node idle for no reason."""
    action_BM = np.zeros((len(active_BK), num_nodes), np.int64)
    for episode, active_K in enumerate(active_BK):
        slots = rng.permutation(np.flatnonzero(active_K) + 1)[:num_nodes]
        nodes = rng.permutation(num_nodes)[: len(slots)]
        action_BM[episode, nodes] = slots * (rng.random(len(slots)) < 0.85)
    return action_BM


simulator_configs = st.builds(
    SimulatorConfig,
    num_nodes=st.just(3),
    num_slots=st.integers(1, 5),
    overflow=st.sampled_from(["defer", "drop"]),
    node_speeds=st.sampled_from([None, (1.0, 1.0, 2.0), (0.5, 1.5, 3.0)]),
    switch_cost_steps=st.integers(0, 2),
    migration_cost_steps=st.sampled_from([0, 0, 1, 3]),
    loss_noise=st.sampled_from([0.0, 0.0, 0.1, 1.0]),
    noise_seed=st.integers(0, 3),
    potential_weight=st.sampled_from([0.0, 0.1, 1.0]),
)
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=120, deadline=None)
@given(config=simulator_configs, seed=seeds)
def test_engine_is_reference_and_rewards_sum_to_completions(config, seed):
    rng = np.random.default_rng(seed)
    replay = random_replay(rng)
    steps, num_episodes = 25, 3
    workload = random_workload(rng, replay, num_episodes, 12, steps)
    engine = Simulator(config, steps, replay)
    engine.reset(workload)
    references = [ReferenceSimulator(config, steps, replay, workload, e) for e in range(num_episodes)]
    lost_at_start_B = [len(reference.past) for reference in references]
    reward_B, completed_B, expired_B = np.zeros((3, num_episodes))
    while not engine.done:
        assert_same_state(engine, references)
        action_BM = random_matching(rng, engine.state.slots.task >= 0, 3)
        outcome = engine.step(action_BM)
        for episode, reference in enumerate(references):
            reward, completed, expired = reference.step(action_BM[episode].tolist())
            assert outcome.reward_B[episode] == pytest.approx(reward, abs=1e-9)
            assert outcome.num_completed_B[episode] == completed
            assert outcome.num_expired_B[episode] == expired
        reward_B += outcome.reward_B
        completed_B += outcome.num_completed_B
        expired_B += outcome.num_expired_B
    assert_same_state(engine, references)
    assert_same_outcomes(engine, references)
    np.testing.assert_allclose(reward_B, completed_B, atol=1e-6)
    assert (lost_at_start_B + completed_B + expired_B == workload.num_tasks_B).all()


def assert_same_state(engine, references):
    state, slots = engine.state, engine.state.slots
    observed = observe(engine, ZeroForecasts())
    for episode, reference in enumerate(references):
        present = reference.slots
        assert slots.task[episode].tolist() == [task.number if task else -1 for task in present]
        assert slots.num_seen[episode].tolist() == [task.num_seen if task else 0 for task in present]
        assert slots.progress[episode].tolist() == pytest.approx(
            [task.progress if task else 0.0 for task in present]
        )
        waiting = np.flatnonzero(state.waiting_BJ[episode]).tolist()
        assert waiting == [task.number for task in reference.queue]
        shown = [task.losses[task.num_seen - 1] if task else 0.0 for task in present]
        assert observed.loss_BK[episode].tolist() == shown, "the same bits"
        assert state.node_delay_BM[episode].tolist() == [node.delay for node in reference.nodes]
        held = [present.index(node.holds) + 1 if node.holds else 0 for node in reference.nodes]
        assert state.node_slot_BM[episode].tolist() == held


def assert_same_outcomes(engine, references):
    outcomes = engine.state.outcomes
    for episode, reference in enumerate(references):
        assert len(reference.past) == engine.workload.num_tasks_B[episode]
        for task in reference.past:
            assert outcomes.finished_BJ[episode, task.number] == task.finished
            assert outcomes.started_BJ[episode, task.number] == task.started
            assert outcomes.ready_BJ[episode, task.number] == task.ready
            assert outcomes.service_BJ[episode, task.number] == pytest.approx(task.service)


@settings(max_examples=20, deadline=None)
@given(config=simulator_configs, seed=seeds)
def test_episodes_do_not_touch_each_other(config, seed):
    """A batch of episodes gives what each of them gives alone."""
    rng = np.random.default_rng(seed)
    replay = random_replay(rng)
    workload = random_workload(rng, replay, 3, 10, 20)
    together = Simulator(config, 20, replay)
    together.reset(workload)
    alone = Simulator(config, 20, replay)
    alone.reset(workload.take(np.array([1])))
    while not together.done:
        action_BM = random_matching(rng, together.state.slots.task >= 0, 3)
        expected = together.step(action_BM).reward_B[1]
        assert alone.step(action_BM[1:2]).reward_B[0] == expected
