import dataclasses

import numpy as np

from mara_ray.allocator.lara import LARA
from mara_ray.allocator.placement import place_by_priority
from mara_ray.allocator.queueing import EDF, FIFO
from tests.toy_worlds import random_observation


def observation_of(*tasks, num_nodes=2, held=None, time=10, speeds=None, num_samples=1):
    """One episode; a task is (arrival, deadline, points seen, forecast), in slots 1, 2, ..."""
    blank = random_observation(np.random.default_rng(0), 1, num_nodes, len(tasks), num_samples)
    arrival_BK, deadline_BK, seen_BK = (
        np.array([[task[column] for task in tasks]], np.int32) for column in range(3)
    )
    remaining = np.array([np.broadcast_to(task[3], num_samples) for task in tasks], np.float32)
    return dataclasses.replace(
        blank,
        time_B=np.array([time], np.int32),
        active_BK=np.ones((1, len(tasks)), bool),
        task_BK=np.arange(len(tasks), dtype=np.int32)[None],
        num_seen_BK=seen_BK,
        arrival_BK=arrival_BK,
        deadline_BK=deadline_BK,
        remaining_BKN=remaining[None],
        node_slot_BM=np.array([held or [0] * num_nodes], np.int32),
        node_speed_M=np.array(speeds or [1.0] * num_nodes, np.float32),
        cap_points=300,
    )


def test_fifo_and_edf():
    observation = observation_of((3, 90, 5, 1), (1, 95, 5, 1), (2, 30, 5, 1))
    assert FIFO().allocate(observation).tolist() == [[2, 3]]
    assert EDF().allocate(observation).tolist() == [[3, 1]]


def test_equal_keys_fall_to_the_older_task():
    observation = observation_of((1, 90, 5, 1), (1, 90, 5, 1), (1, 90, 5, 1))
    for allocator in (FIFO(), EDF()):
        assert allocator.allocate(observation).tolist() == [[1, 2]]


def test_a_task_stays_on_its_node():
    observation = observation_of((3, 90, 5, 1), (1, 95, 5, 1), (2, 30, 5, 1), held=[3, 1])
    assert FIFO().allocate(observation).tolist() == [[3, 2]]


def test_a_task_that_moves_in_gets_the_fastest_free_node():
    observation = observation_of((1, 90, 5, 1), num_nodes=3, speeds=[1.0, 2.0, 1.5])
    assert place_by_priority(observation, observation.arrival_BK).tolist() == [[0, 1, 0]]


def test_lara_explores_first_and_the_oldest_first():
    observation = observation_of((4, 20, 9, 5), (3, 90, 3, 290), (2, 90, 1, 299), (1, 90, 4, 80), num_nodes=3)
    assert set(LARA().allocate(observation)[0]) == {2, 3, 4}  # 4 has no laxity
    observation = dataclasses.replace(observation, node_slot_BM=np.array([[0]], np.int32))
    observation = dataclasses.replace(observation, node_speed_M=np.ones(1, np.float32))
    assert LARA().allocate(observation).tolist() == [[3]]


def test_lara_serves_what_can_be_done_and_the_least_lax_first():
    # Windows from step 10: 30, 60, 60. The first is hopeless (needs 31), the third is the least lax.
    observation = observation_of((0, 40, 9, 31), (1, 70, 9, 20), (2, 70, 9, 25), num_nodes=1)
    assert LARA().allocate(observation).tolist() == [[3]]


def test_lara_evicts_what_does_not_fit_together():
    # One node, 20 steps: 15 + 8 do not fit, 8 does and is the smaller.
    observation = observation_of((0, 30, 9, 15), (1, 30, 9, 8), num_nodes=1)
    assert LARA().allocate(observation).tolist() == [[2]]


def test_lara_gives_spare_nodes_to_the_least_observed():
    observation = observation_of((0, 20, 9, 50), (1, 20, 5, 50), (2, 20, 7, 4), num_nodes=2)
    assert set(LARA().allocate(observation)[0]) == {2, 3}


def test_lara_holds_an_estimate_at_the_cap_to_be_out_of_reach():
    # Both have 5 points to come of 300; the forecast of the first says that they will not do.
    observation = observation_of((0, 20, 295, 5), (1, 20, 295, 4), num_nodes=1)
    assert LARA().allocate(observation).tolist() == [[2]]


def test_lara_decides_on_the_median():
    # Windows from step 10: 5 and 4. By the median (1 and 9) only the first can be done; by the mean
    # (8.25 and 7) none, by the smallest sample both, and the second would be the less lax.
    observation = observation_of(
        (0, 15, 9, [1, 1, 1, 30]), (1, 14, 9, [1, 9, 9, 9]), num_nodes=1, num_samples=4
    )
    assert LARA().allocate(observation).tolist() == [[1]]
    observation = dataclasses.replace(observation, num_seen_BK=np.array([[9, 8]], np.int32))
    assert LARA().allocate(observation).tolist() == [[1]]


def test_names():
    assert (FIFO().name, EDF().name, LARA().name) == ("fifo", "edf", "lara")
