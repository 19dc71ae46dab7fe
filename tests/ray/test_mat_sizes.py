"""A policy trained for one number of nodes and slots plays at others as it is."""

import numpy as np
import pytest

from mara_ray.allocator.mat.algorithm import train_policy
from mara_ray.allocator.mat.policy import MATAllocator
from mara_ray.simulator.env import World
from tests.ray.mat_worlds import toy_config, write_toy_world

pytestmark = pytest.mark.ray

ARRIVALS_PER_NODE = 0.06


def world_config(num_nodes):
    """As many tasks and slots a node at every size."""
    return toy_config(
        f"simulator.num_nodes={num_nodes}",
        f"simulator.num_slots={2 * num_nodes}",
        f"workload.arrival_probability={ARRIVALS_PER_NODE * num_nodes}",
        "allocator.updates=2",
    )


@pytest.fixture(scope="module")
def trained(local_ray, tmp_path_factory):
    directory = tmp_path_factory.mktemp("world")
    paths = write_toy_world(directory, world_config(4))
    train_policy(world_config(4), "wls", 0, *paths, directory / "policy")
    return paths, directory / "policy"


@pytest.mark.parametrize("num_nodes", [2, 4, 8, 16])
def test_a_policy_plays_at_other_sizes(trained, num_nodes):
    paths, policy = trained
    allocator = MATAllocator.load(policy)
    world = World.load(world_config(num_nodes), *paths)
    env, workload = world.batched(), world.validation_workload()
    env.reset(workload)
    num_choices = 0
    while not env.done:
        rows, observation = env.observe()
        action_BM = allocator.allocate(observation)
        assert action_BM.shape == observation.node_slot_BM.shape
        for action_M, active_K in zip(action_BM, observation.active_BK, strict=True):
            slots = action_M[action_M > 0]
            assert active_K[slots - 1].all()
            assert len(set(slots)) == len(slots) == min(num_nodes, active_K.sum())
        num_choices += len(rows)
        env.simulator.step(action_BM)
    assert num_choices > 0
    completed = env.num_completed_B.sum() / workload.num_tasks_B.sum()
    print(f"M = {num_nodes}: {num_choices} decisions, {100 * completed:.0f} % completed")
    assert np.isfinite(completed) and completed > 0
