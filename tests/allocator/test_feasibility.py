import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from mara_ray.allocator.feasibility import _greedy, fits, largest_feasible_set


def flow_fits(demand_K, window_K, num_nodes):
    """Horn's network as a linear program: service of task k in the interval between two deadlines."""
    if not demand_K:
        return True
    edges = [0, *sorted(set(window_K))]
    lengths = np.diff(edges)
    pairs = [(k, i) for k, w in enumerate(window_K) for i in range(len(lengths)) if edges[i + 1] <= w]
    per_task = np.array([[pair[0] == k for pair in pairs] for k in range(len(demand_K))], float)
    per_interval = np.array([[pair[1] == i for pair in pairs] for i in range(len(lengths))], float)
    bounds = [(0, lengths[i]) for _, i in pairs]
    result = linprog(
        np.zeros(len(pairs)),
        A_ub=per_interval,
        b_ub=num_nodes * lengths,
        A_eq=per_task,
        b_eq=demand_K,
        bounds=bounds,
    )
    return result.status == 0


def random_tasks(rng, most=6):
    window_K = sorted(rng.integers(1, 12, rng.integers(1, most + 1)).tolist())
    return [int(rng.integers(0, window + 1)) for window in window_K], window_K


def test_fits_by_hand():
    assert fits([3, 3, 3], [5, 5, 5], 2)  # 9 of 10 node-steps
    assert not fits([4, 4, 4], [5, 5, 5], 2)  # 12 of 10
    assert not fits([5, 5, 1], [5, 5, 5], 2)
    assert fits([5, 5, 1], [5, 5, 6], 2)  # a node is free in step 6
    assert not fits([1, 2], [1, 2], 1)
    assert fits([1, 1], [1, 2], 1)


def test_late_work_that_only_one_node_can_do_counts():
    # Two tasks of 6 fill two nodes to step 6; of the other two, only one node at a time can take each.
    assert not fits([2, 6, 6], [2, 6, 6], 2)
    assert fits([2, 4, 6], [2, 6, 6], 2)


def test_fits_is_the_max_flow():
    rng = np.random.default_rng(0)
    answers = []
    for _ in range(150):
        num_nodes = int(rng.integers(1, 4))
        demand_K, window_K = random_tasks(rng)
        answers.append(fits(demand_K, window_K, num_nodes))
        assert answers[-1] == flow_fits(demand_K, window_K, num_nodes), (demand_K, window_K, num_nodes)
    assert 30 < sum(answers) < 120


def brute_force(demand_K, window_K, num_nodes):
    """Size and least demand of the largest set that fits."""
    for size in range(len(demand_K), -1, -1):
        totals = [
            sum(demand_K[k] for k in chosen)
            for chosen in itertools.combinations(range(len(demand_K)), size)
            if fits([demand_K[k] for k in chosen], [window_K[k] for k in chosen], num_nodes)
        ]
        if totals:
            return size, min(totals)
    raise AssertionError


@pytest.mark.parametrize("num_nodes", [1, 2, 4])
def test_the_set_is_the_largest(num_nodes):
    rng = np.random.default_rng(1)
    demand_BK, window_BK = rng.integers(1, 14, (60, 8)), rng.integers(1, 25, (60, 8))
    candidate_BK = rng.random((60, 8)) < 0.9
    kept_BK = largest_feasible_set(demand_BK, window_BK, candidate_BK, num_nodes)
    assert not (kept_BK & ~candidate_BK).any()
    for episode in range(60):
        alone_K = candidate_BK[episode] & (demand_BK[episode] <= window_BK[episode])
        by_window = sorted(np.flatnonzero(alone_K), key=lambda k: window_BK[episode, k])
        demand_K = demand_BK[episode, by_window].tolist()
        window_K = window_BK[episode, by_window].tolist()
        kept_K = kept_BK[episode]
        found = (kept_K.sum(), demand_BK[episode, kept_K].sum())
        assert found == brute_force(demand_K, window_K, num_nodes)
        kept = [k for k in by_window if kept_K[k]]
        assert fits(demand_BK[episode, kept].tolist(), window_BK[episode, kept].tolist(), num_nodes)


def test_with_many_slots_the_set_fits_and_is_seldom_smaller():
    rng = np.random.default_rng(2)
    demand_BK, window_BK = rng.integers(1, 14, (60, 8)), rng.integers(1, 25, (60, 8))
    exact_BK = largest_feasible_set(demand_BK, window_BK, np.ones((60, 8), bool), 3)
    order_BK = np.argsort(window_BK, axis=1, kind="stable")
    demand_BK, window_BK, exact_BK = (
        np.take_along_axis(array, order_BK, 1) for array in (demand_BK, window_BK, exact_BK)
    )
    greedy_BK = _greedy(demand_BK, window_BK, demand_BK <= window_BK, 3)
    for kept_K, demand_K, window_K in zip(greedy_BK, demand_BK, window_BK, strict=True):
        assert fits(demand_K[kept_K].tolist(), window_K[kept_K].tolist(), 3)
    assert (greedy_BK.sum(1) <= exact_BK.sum(1)).all()
    assert (greedy_BK.sum(1) == exact_BK.sum(1)).mean() > 0.9


def test_twelve_slots():
    demand_BK, window_BK = np.full((1, 12), 5), np.full((1, 12), 10)
    kept_BK = largest_feasible_set(demand_BK, window_BK, np.ones((1, 12), bool), 4)
    assert kept_BK.sum() == 8
