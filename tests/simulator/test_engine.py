import math

import numpy as np
import pytest

from mara_ray.config import SimulatorConfig
from mara_ray.errors import UserError
from mara_ray.simulator.engine import Simulator
from tests.toy_worlds import halving_replay, one_episode

STEPS = 10


def simulator_of(*tasks, **config):
    settings = {"num_nodes": 2, "num_slots": 2, "potential_weight": 0.5} | config
    simulator = Simulator(SimulatorConfig(**settings), STEPS, halving_replay())
    simulator.reset(one_episode(*tasks))
    return simulator


def play(simulator, *actions):
    return [simulator.step(np.array([action])) for action in actions]


def test_a_task_finishes_in_the_step_that_meets_its_target():
    simulator = simulator_of((0, 9, 1))  # two blocks of service
    first, second = play(simulator, [1, 0], [0, 1])
    assert first.num_completed_B.tolist() == [0]
    assert first.reward_B[0] == pytest.approx(0.5 * 0.5)  # half of the log-drop
    assert second.num_completed_B.tolist() == [1]
    assert second.reward_B[0] == pytest.approx(1 - 0.5 * 0.5)
    outcomes = simulator.state.outcomes
    assert outcomes.finished_BJ.tolist() == [[1]] and outcomes.started_BJ.tolist() == [[0]]
    assert outcomes.service_BJ.tolist() == [[2.0]]
    assert simulator.state.slots.task.tolist() == [[-1, -1]]


@pytest.mark.parametrize(("deadline", "completed"), [(2, 1), (1, 0)])
def test_steps_before_the_deadline_count_and_no_other(deadline, completed):
    simulator = simulator_of((0, deadline, 1))
    outcomes = play(simulator, [1, 0])
    if not simulator.done and simulator.state.slots.task[0, 0] >= 0:
        outcomes += play(simulator, [1, 0])
    assert sum(int(outcome.num_completed_B[0]) for outcome in outcomes) == completed
    assert sum(int(outcome.num_expired_B[0]) for outcome in outcomes) == 1 - completed


def test_an_expired_slot_is_filled_in_the_same_step():
    simulator = simulator_of((0, 1, 11), (0, 9, 11), (0, 9, 0))
    assert simulator.state.slots.task.tolist() == [[0, 1]]
    (outcome,) = play(simulator, [0, 0])
    assert outcome.num_expired_B.tolist() == [1]
    assert simulator.state.slots.task.tolist() == [[2, 1]]


def test_deferred_tasks_expire_in_the_queue():
    simulator = simulator_of((0, 9, 11), (0, 9, 11), (0, 2, 0))
    first, second = play(simulator, [0, 0], [0, 0])
    assert (first.num_expired_B[0], second.num_expired_B[0]) == (0, 1)
    assert not simulator.state.waiting_BJ.any()


def test_without_deferral_a_task_that_finds_no_slot_is_lost():
    simulator = simulator_of((0, 9, 11), (0, 9, 11), (1, 9, 0), overflow="drop")
    (outcome,) = play(simulator, [0, 0])
    assert outcome.num_expired_B.tolist() == [1]


def test_rewards_sum_to_completions_with_tasks_active_at_the_end():
    simulator = simulator_of((0, 99, 4), (3, 99, 9))
    rewards = [float(outcome.reward_B[0]) for outcome in play(simulator, *[[1, 0]] * 2, *[[0, 0]] * 7)]
    assert sum(rewards) == pytest.approx(0.5 * (2 / 5))
    last = play(simulator, [0, 2])[0]
    assert simulator.done and last.num_expired_B.tolist() == [2]
    assert sum(rewards) + last.reward_B[0] == pytest.approx(0.0, abs=1e-12)


def test_a_switch_costs_steps_and_a_held_task_does_not():
    simulator = simulator_of((0, 9, 11), (0, 9, 11), switch_cost_steps=2)
    seen = []
    for action in ([1, 0], [1, 0], [1, 0], [0, 0], [1, 0], [2, 0], [1, 0]):
        play(simulator, action)
        seen.append(simulator.state.slots.num_seen[0].tolist())
    assert seen == [[1, 1], [1, 1], [2, 1], [2, 1], [3, 1], [3, 1], [3, 1]]
    assert simulator.state.outcomes.switches_B.tolist() == [3]


def test_a_task_is_held_by_the_node_that_took_it_up_last():
    simulator = simulator_of((0, 9, 11), switch_cost_steps=1)
    play(simulator, [1, 0], [0, 1])
    assert simulator.state.node_slot_BM.tolist() == [[0, 1]]


def seen_after(simulator, *actions):
    seen = []
    for action in actions:
        play(simulator, action)
        seen.append(simulator.state.slots.num_seen[0].tolist())
    return seen


def test_a_move_costs_steps_and_coming_home_does_not():
    simulator = simulator_of((0, 9, 11), (0, 9, 11), migration_cost_steps=1)
    moves = [1, 0], [0, 1], [0, 1], [1, 0], [2, 1], [1, 2]
    assert seen_after(simulator, *moves) == [
        [2, 1],  # the first node of a task costs nothing
        [2, 1],  # on its way to node 1
        [3, 1],
        [3, 1],  # and back to node 0
        [4, 2],  # node 1 was still the one that served it last: nothing to pay
        [4, 2],  # both on their way
    ]


def test_the_costs_of_a_switch_and_of_a_move_add_up():
    simulator = simulator_of((0, 9, 11), switch_cost_steps=1, migration_cost_steps=2)
    assert seen_after(simulator, *[[1, 0]] * 2, *[[0, 1]] * 4) == [
        *([n, 0] for n in (1, 2, 2, 2, 2, 3)),
    ]


def test_the_next_task_of_a_slot_has_no_home():
    simulator = simulator_of((0, 1, 11), (1, 9, 11), num_slots=1, migration_cost_steps=5)
    assert seen_after(simulator, [1, 0], [0, 1]) == [[1], [2]]


def test_node_speeds():
    simulator = simulator_of((0, 9, 11), (0, 9, 11), node_speeds=(0.5, 3.0))
    play(simulator, [1, 2])
    assert simulator.state.slots.num_seen.tolist() == [[1, 4]]
    play(simulator, [1, 2])
    assert simulator.state.slots.num_seen.tolist() == [[2, 7]]


def test_a_curve_ends_at_its_last_point():
    simulator = simulator_of((0, 9, 11), node_speeds=(7.0, 1.0))
    play(simulator, [1, 0], [1, 0])
    assert simulator.state.slots.num_seen.tolist() == [[12, 0]]
    assert simulator.state.slots.service.tolist() == [[14.0, 0.0]]


def test_counters():
    simulator = simulator_of((0, 9, 11), (0, 9, 11), (0, 9, 11))
    play(simulator, [1, 0], [0, 0])
    outcomes = simulator.state.outcomes
    assert outcomes.full_steps_B.tolist() == [2]
    assert outcomes.waiting_steps_B.tolist() == [2 + 3]
    assert outcomes.busy_steps_B.tolist() == [1]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([[1, 1]], r"action: 1 of node 0 in episode 0 at step 1 is an empty slot, or the slot of two nodes"),
        ([[0, 2]], r"action: 2 of node 1 in episode 0 at step 1 is an empty slot"),
        ([[0, 3]], r"action: 3 of node 1 in episode 0 at step 1 is not a slot"),
        ([[-1, 0]], r"action: -1 of node 0 in episode 0 at step 1 is not a slot"),
        ([[1.0, 0.0]], r"float64 \(1, 2\) at step 1"),
        ([[1, 0, 0]], r"\(1, 3\) at step 1"),
    ],
)
def test_an_illegal_action_is_refused(action, message):
    simulator = simulator_of((0, 9, 11))
    play(simulator, [1, 0])
    with pytest.raises(UserError, match=message):
        simulator.step(np.array(action))


@pytest.mark.parametrize("integer", [np.int8, np.int32, np.uint8, np.uint64])
def test_any_integers_will_do(integer):
    simulator = simulator_of((0, 9, 11), migration_cost_steps=1)
    simulator.step(np.array([[0, 1]], integer))
    simulator.step(np.array([[1, 0]], integer))
    assert simulator.state.slots.num_seen.tolist() == [[2, 0]]
    with pytest.raises(UserError, match="action: 2 of node 0 in episode 0 at step 2 is an empty slot"):
        simulator.step(np.array([[2, 0]], integer))


def test_no_step_after_the_end():
    simulator = simulator_of((0, 9, 11))
    play(simulator, *[[0, 0]] * STEPS)
    with pytest.raises(UserError, match="ended at step 10"):
        play(simulator, [0, 0])


def test_speeds_must_match_the_nodes():
    with pytest.raises(UserError, match=r"simulator.node_speeds: 3 speeds for 2 nodes"):
        simulator_of((0, 9, 1), node_speeds=(1.0, 1.0, 1.0))


def test_progress_is_log_progress():
    simulator = simulator_of((0, 9, 2))
    play(simulator, [1, 0])
    expected = math.log(1 / 0.5) / math.log(1 / 0.125)
    assert simulator.state.slots.progress[0].tolist() == pytest.approx([expected, 0.0])
