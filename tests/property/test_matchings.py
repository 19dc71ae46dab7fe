"""Whatever the state, an allocator's joint action is a matching that leaves no node idle for nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.allocator.lara import LARA
from mara_ray.allocator.methods import METHODS
from mara_ray.allocator.protocol import Allocator
from mara_ray.allocator.queueing import EDF, FIFO
from tests.toy_worlds import random_observation

NAMES = ("fifo", "edf", "random", "llf", "srpt", "lara", "lara_fixed", "laira", "planner")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(
    num_nodes=st.integers(1, 5),
    num_slots=st.sampled_from([1, 4, 8, 12]),
    num_samples=st.sampled_from([1, 8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_joint_action_is_a_matching(name, num_nodes, num_slots, num_samples, seed):
    allocator = METHODS[name].make()
    assert isinstance(allocator, Allocator)
    observation = random_observation(np.random.default_rng(seed), 5, num_nodes, num_slots, num_samples)
    allocator.reset(5)
    action_BM = allocator.allocate(observation)
    assert action_BM.shape == (5, num_nodes) and action_BM.dtype == np.int64
    for action_M, active_K, held_M in zip(
        action_BM, observation.active_BK, observation.node_slot_BM, strict=True
    ):
        served = action_M[action_M > 0]
        assert len(set(served)) == len(served)
        assert active_K[served - 1].all()
        assert len(served) == min(num_nodes, active_K.sum())
        for node, slot in enumerate(held_M):
            assert slot not in served or action_M[node] == slot, (
                "a task that is served again stays where it is"
            )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), allocator=st.sampled_from([FIFO(), EDF(), LARA()]))
def test_the_order_of_the_slots_does_not_matter(seed, allocator):
    rng = np.random.default_rng(seed)
    observation = random_observation(rng, 1, 3, 8, 4)
    tasks = [set(served_tasks(observation, allocator.allocate(observation)))]
    order_K = rng.permutation(8)
    moved = {name: value[:, order_K] if "_BK" in name else value for name, value in vars(observation).items()}
    place_of = np.append(0, np.argsort(order_K) + 1)
    moved["node_slot_BM"] = place_of[observation.node_slot_BM].astype(np.int32)
    permuted = type(observation)(**moved)
    tasks.append(set(served_tasks(permuted, allocator.allocate(permuted))))
    assert tasks[0] == tasks[1]


def served_tasks(observation, action_BM):
    return observation.task_BK[0, action_BM[0][action_BM[0] > 0] - 1].tolist()
