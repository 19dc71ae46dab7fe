"""The transformer decides for many nodes within a step's time; `pytest -s` prints the figures."""

import time

import numpy as np
import pytest
import torch

from mara_ray.allocator.mat.network import MAT, NetworkShape
from mara_ray.allocator.mat.policy import MATAllocator
from mara_ray.config import load_config
from tests.toy_worlds import random_observation

NUM_SLOTS, NUM_SAMPLES = 1024, 8
TARGET_MS, MARGIN = 50, 4  # on one core of a machine at rest; and how much slower others may be
REPEATS = 7


def busy_observation(num_nodes):
    """More tasks than nodes."""
    rng = np.random.default_rng(0)
    while True:
        observation = random_observation(rng, 1, num_nodes, NUM_SLOTS, NUM_SAMPLES)
        if observation.active_BK.sum() > 0.9 * NUM_SLOTS:
            return observation


def decision_ms(num_nodes, imposed_order):
    """CPU time of one greedy decision, the fastest of some, and of the first."""
    torch.manual_seed(0)
    size = load_config("quick").allocator
    network = MAT(NetworkShape(size.width, size.num_heads, size.num_blocks, imposed_order))
    allocator, observation = MATAllocator(network, 5, {}), busy_observation(num_nodes)
    times = []
    for _ in range(REPEATS):
        allocator.reset(1)
        start = time.process_time()
        action_1M = allocator.allocate(observation)
        times.append(1000 * (time.process_time() - start))
        assert len(set(action_1M[0])) == num_nodes and (action_1M > 0).all(), "every node has its own task"
    return min(times[1:]), times[0]


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("imposed_order", [True, False])
def test_a_large_decision_is_quick_and_its_cost_linear_in_the_nodes(imposed_order, one_thread):
    fastest, first = {}, {}
    for num_nodes in (64, 128, 256):
        fastest[num_nodes], first[num_nodes] = decision_ms(num_nodes, imposed_order)
        print(
            f"M = {num_nodes}, K = {NUM_SLOTS}: {fastest[num_nodes]:.1f} ms, first {first[num_nodes]:.0f} ms"
        )
    assert fastest[256] < MARGIN * TARGET_MS
    assert fastest[256] < 4 * fastest[64], "in proportion to the nodes, or less"
    assert first[256] < 2000, "tracing does not grow with the nodes"
