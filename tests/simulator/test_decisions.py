"""When a decision is asked for, and that it is held until then."""

from dataclasses import replace

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.simulator.decisions import Decisions, at_rows, forced_action, has_choice, nodes_alike
from tests.toy_worlds import random_observation


def watched(num_tasks=3, num_seen=5, task=0):
    """One episode, two nodes, four slots, the first of which hold tasks."""
    observation = random_observation(np.random.default_rng(0), 1, 2, 4, 1)
    slot_K = np.arange(4)
    return replace(
        observation,
        active_BK=(slot_K < num_tasks)[None],
        task_BK=np.where(slot_K < num_tasks, slot_K + task, -1).astype(np.int32)[None],
        num_seen_BK=np.where(slot_K < num_tasks, num_seen, 0).astype(np.int32)[None],
    )


def test_a_choice_needs_more_tasks_than_nodes_when_nodes_are_alike():
    assert has_choice(watched(3), alike=True).tolist() == [True]
    assert has_choice(watched(2), alike=True).tolist() == [False]
    assert has_choice(watched(2), alike=False).tolist() == [True], "which node takes which task matters"
    assert has_choice(watched(0), alike=False).tolist() == [False]
    assert forced_action(watched(2)).tolist() == [[1, 2]]
    assert forced_action(watched(1)).tolist() == [[1, 0]]


def test_nodes_are_alike_when_speeds_are_equal_and_neither_switching_nor_moving_costs():
    assert nodes_alike(SimulatorConfig()) and nodes_alike(SimulatorConfig(node_speeds=(2.0,) * 4))
    assert not nodes_alike(SimulatorConfig(node_speeds=(1.0, 1.0, 1.0, 2.0)))
    assert not nodes_alike(SimulatorConfig(switch_cost_steps=1))
    assert not nodes_alike(SimulatorConfig(migration_cost_steps=1))


def test_decisions_are_held_until_they_are_old_or_the_tasks_change():
    decisions, asked = Decisions(alike=True, decision_steps=3), []
    steps = [
        (watched(), [[2, 3]]),  # first: asked
        (watched(), [[2, 3]]),
        (watched(), [[2, 3]]),
        (watched(), [[1, 3]]),  # three steps old: asked
        (watched(2), [[1, 2]]),  # a task left: nothing to choose
        (watched(3, task=7), [[2, 3]]),  # new tasks: asked
        (watched(3, num_seen=2, task=7), [[1, 3]]),  # readiness changed: asked
        (watched(3, num_seen=2, task=7), [[1, 3]]),
    ]
    for step, (observation, action) in enumerate(steps):
        rows = decisions.due(observation)
        if len(rows):
            asked.append(step)
        answer_RM = np.array(action)[: len(rows)].reshape(-1, 2)
        assert decisions.complete(rows, answer_RM, observation).tolist() == action
    assert asked == [0, 3, 5, 6]


def test_a_reset_asks_again():
    decisions = Decisions(alike=True, decision_steps=9)
    decisions.due(watched())
    decisions.complete(np.array([0]), np.array([[1, 2]]), watched())
    assert len(decisions.due(watched())) == 0
    decisions.reset()
    assert len(decisions.due(watched())) == 1


def test_rows_are_taken_of_every_field_that_has_them():
    observation = random_observation(np.random.default_rng(2), 16, 4, 8, 8)
    part = at_rows(observation, np.array([3, 11]))
    assert part.time_B.shape == (2,)
    assert part.node_speed_M is observation.node_speed_M
    np.testing.assert_array_equal(part.remaining_BKN[1], observation.remaining_BKN[11])
