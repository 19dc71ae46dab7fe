"""LaiRA on cases worked out by hand: who comes first, who keeps its node, and how slices adapt."""

from __future__ import annotations

import dataclasses

import numpy as np

from mara_ray.allocator.laira import FIRST_SLICE, LaiRA
from mara_ray.simulator.observe import Observation
from tests.allocator.test_queueing import observation_of
from tests.toy_worlds import random_observation


def with_losses(observation: Observation, losses: list[float], target: float) -> Observation:
    return dataclasses.replace(
        observation,
        loss_BK=np.array([losses], np.float32),
        target_BK=np.full((1, len(losses)), target, np.float32),
    )


def test_the_task_furthest_ahead_of_its_need_comes_first() -> None:
    """All at 9 points with 80 steps left; those that need 10 and 20 more are furthest ahead."""
    tasks = (0, 90, 9, 60), (1, 90, 9, 10), (2, 90, 9, 20), (3, 90, 9, 85)
    observation = with_losses(observation_of(*tasks), [2.0] * 4, 1.0)
    allocator = LaiRA()
    allocator.reset(1)
    assert set(allocator.allocate(observation)[0]) == {2, 3}


def test_a_node_keeps_its_task_until_the_slice_ends_or_a_task_arrives() -> None:
    tasks = (0, 90, 9, 60), (1, 90, 9, 10)
    observation = with_losses(observation_of(*tasks, num_nodes=1), [2.0, 2.0], 1.0)
    allocator = LaiRA()
    allocator.reset(1)
    assert allocator.allocate(observation).tolist() == [[2]]
    better = dataclasses.replace(
        observation,
        remaining_BKN=np.array([[[5], [40]]], np.float32),
        node_slot_BM=np.array([[2]], np.int32),
    )
    choices = [int(allocator.allocate(better)[0, 0]) for _ in range(int(FIRST_SLICE))]
    assert choices == [2] * (int(FIRST_SLICE) - 1) + [1]
    arrival = dataclasses.replace(better, task_BK=np.array([[0, 7]], np.int32))
    allocator.reset(1)
    allocator.allocate(observation)
    assert int(allocator.allocate(arrival)[0, 0]) == 1


def test_slices_shorten_where_the_forecast_was_wrong() -> None:
    """Foretold from 2.0 to 1.0 in 9 points after 9: then the loss is as foretold, or has not moved."""
    slices = []
    for loss in (1.0, 2.0):
        observation = with_losses(observation_of((0, 90, 9, 9), num_nodes=1), [2.0], 1.0)
        allocator = LaiRA()
        allocator.reset(1)
        allocator.allocate(observation)
        later = dataclasses.replace(observation, num_seen_BK=np.array([[18]], np.int32))
        for _ in range(int(FIRST_SLICE)):
            allocator.allocate(with_losses(later, [loss], 1.0))
        slices.append(float(allocator._slice_B[0]))
    assert slices[0] == FIRST_SLICE and slices[1] == 1.0


def test_every_action_is_a_matching() -> None:
    rng = np.random.default_rng(0)
    allocator = LaiRA()
    allocator.reset(4)
    for _ in range(30):
        observation = random_observation(rng, 4, 3, 6, 1)
        for action_M, active_K in zip(allocator.allocate(observation), observation.active_BK, strict=True):
            used = action_M[action_M > 0]
            assert len(set(used)) == len(used) == min(3, active_K.sum())
            assert active_K[used - 1].all()
