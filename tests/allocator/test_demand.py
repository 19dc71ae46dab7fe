"""LLF, SRPT, random and the planner on cases worked out by hand, and the planner against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.allocator.chance import Random
from mara_ray.allocator.demand import LLF, SRPT
from mara_ray.allocator.lara import LARA
from mara_ray.allocator.planner import LOAD_WEIGHT, Planner, best_subsets
from mara_ray.simulator.observe import Observation
from tests.allocator.test_queueing import observation_of


def served(allocator, observation: Observation) -> set[int]:  # type: ignore[no-untyped-def]
    allocator.reset(len(observation.active_BK))
    return set(allocator.allocate(observation)[0].tolist())


def test_least_laxity_and_shortest_demand() -> None:
    """Laxities at step 10 are 20, 5, 40 and -10; demands 60, 75, 10 and 30."""
    observation = observation_of((0, 90, 9, 60), (1, 90, 9, 75), (2, 60, 9, 10), (3, 30, 9, 30))
    assert served(LLF(), observation) == {1, 2}
    assert served(SRPT(), observation) == {3, 1}


def test_unknown_tasks_come_first_and_hopeless_ones_last() -> None:
    observation = observation_of((0, 90, 9, 60), (1, 90, 3, 290), (2, 30, 9, 25), num_nodes=2)
    for allocator in (LLF(), SRPT()):
        assert served(allocator, observation) == {2, 1}
    assert served(SRPT(), observation_of((0, 90, 9, 60), (1, 90, 3, 290), (2, 30, 9, 25), num_nodes=3)) == {
        1, 2, 3,
    }  # fmt: skip


def test_the_other_reading_of_lara_explores_all_first() -> None:
    observation = observation_of((4, 40, 9, 25), (3, 90, 3, 290), (2, 90, 6, 60), num_nodes=2)
    assert served(LARA(), observation) == {2, 1}
    assert served(LARA(explore_all_first=True), observation) == {2, 3}


def test_random_is_the_same_in_every_run_and_fair() -> None:
    observation = observation_of(*[(k, 90, 9, 20) for k in range(4)], num_nodes=1)
    runs = []
    for _ in range(2):
        allocator = Random()
        allocator.reset(1)
        runs.append([int(allocator.allocate(observation)[0, 0]) for _ in range(400)])
    assert runs[0] == runs[1]
    assert min(np.bincount(runs[0], minlength=5)[1:]) > 60


def test_the_planner_gives_up_the_long_task() -> None:
    """One node, 80 steps left for all: 70 alone, or 40 and 30 both."""
    observation = observation_of((0, 90, 9, 70), (1, 90, 9, 40), (2, 90, 9, 30), num_nodes=1)
    assert served(Planner(), observation) == {2}  # of equal deadlines the older first
    chosen = best_subsets(np.array([[[70], [40], [30]]]), np.full((1, 3), 80), np.ones((1, 3), bool), 1)
    assert chosen.tolist() == [[False, True, True]]


def test_the_planner_weighs_the_samples() -> None:
    """One node: the first is done by 50 in three of four samples, the second in all, both never."""
    demand_RKN = np.array([[[30, 30, 30, 90], [45, 45, 45, 45]]])
    chosen = best_subsets(demand_RKN, np.full((1, 2), 50), np.ones((1, 2), bool), 1)
    assert chosen.tolist() == [[False, True]]


def brute_force(demand_KN: np.ndarray, window_K: np.ndarray, num_nodes: int) -> float:
    best = 0.0
    for size in range(len(window_K) + 1):
        for subset in itertools.combinations(range(len(window_K)), size):
            on_time = 0
            for sample in range(demand_KN.shape[1]):
                free = [0.0] * num_nodes
                for task in sorted(subset, key=lambda k: (window_K[k], k)):
                    node = free.index(min(free))
                    free[node] += demand_KN[task, sample]
                    on_time += free[node] <= window_K[task]
            load = LOAD_WEIGHT * sum(demand_KN[task].mean() for task in subset)
            best = max(best, on_time / demand_KN.shape[1] - load)
    return best


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_the_planner_is_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_tasks, num_nodes = rng.integers(1, 7), int(rng.integers(1, 4))
    demand_KN = rng.integers(1, 100, (num_tasks, 3)).astype(float)
    window_K = rng.integers(1, 150, num_tasks)
    chosen_K = best_subsets(demand_KN[None], window_K[None], np.ones((1, num_tasks), bool), num_nodes)[0]
    picked = np.flatnonzero(chosen_K)
    everything = brute_force(demand_KN, window_K, num_nodes)
    if num_tasks > num_nodes:
        assert value_of(picked, demand_KN, window_K, num_nodes) == pytest.approx(everything)


def value_of(picked: np.ndarray, demand_KN: np.ndarray, window_K: np.ndarray, num_nodes: int) -> float:
    on_time = 0
    for sample in range(demand_KN.shape[1]):
        free = [0.0] * num_nodes
        for task in sorted(picked.tolist(), key=lambda k: (window_K[k], k)):
            node = free.index(min(free))
            free[node] += demand_KN[task, sample]
            on_time += free[node] <= window_K[task]
    return on_time / demand_KN.shape[1] - LOAD_WEIGHT * demand_KN[picked].mean(1).sum()
