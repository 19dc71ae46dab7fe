"""Which tasks can all be done: sets of known demands and deadlines on M identical nodes.

Axis letters: B episodes, M nodes, K slots, S subsets of slots.

All tasks are here, may be preempted and moved, and are on one node at a time. Then a set fits if and
only if every part S of it does: its demands sum to no more than its M widest windows do. (The tasks
of S that are still before their deadline after time u can use min(M, how many they are) nodes; the
integral of that over u is the sum of the M widest windows of S. This is the minimum cut of Horn's
flow network, 1974.)
"""

from __future__ import annotations

import heapq
from functools import cache

import numpy as np

MOST_SLOTS_EXACT = 10  # up to here the largest set is found by looking at all 2^K


def largest_feasible_set(
    demand_BK: np.ndarray, window_BK: np.ndarray, candidate_BK: np.ndarray, num_nodes: int
) -> np.ndarray:
    """The largest set of candidates that can all be done; of equally large ones that with least demand.

    Exact up to 10 slots. With more, tasks are added in deadline order and the largest is evicted
    whenever they do not fit (Moore and Hodgson's rule, optimal for one node).

    Args:
        demand_BK: steps of service still needed, whole numbers.
        window_BK: steps until the deadline, whole numbers.
        candidate_BK: bool, the tasks to choose from.
        num_nodes: M.

    Returns:
        bool (B, K).
    """
    candidate_BK = candidate_BK & (demand_BK <= window_BK)
    order_BK = np.argsort(np.where(candidate_BK, window_BK, 0), axis=1, kind="stable")
    sorted_BK = np.take_along_axis(candidate_BK, order_BK, 1)
    demand_BK = np.take_along_axis(demand_BK, order_BK, 1) * sorted_BK
    window_BK = np.take_along_axis(window_BK, order_BK, 1) * sorted_BK
    choose = _exact if candidate_BK.shape[1] <= MOST_SLOTS_EXACT else _greedy
    kept_BK = np.empty_like(candidate_BK)
    np.put_along_axis(kept_BK, order_BK, choose(demand_BK, window_BK, sorted_BK, num_nodes), 1)
    return kept_BK


def fits(demand_K: list[float], window_K: list[float], num_nodes: int) -> bool:
    """Whether tasks sorted by window, each of which fits its own window, can all be done.

    For the part S with j as its M-th widest window, the worst choice is all tasks up to j and, of the
    later ones, the M - 1 with the least laxity. O(K log M).
    """
    least_lax: list[float] = []  # heap of the M - 1 largest (demand - window) behind j
    excess = 0.0
    total = float(sum(demand_K))
    for demand, window in zip(reversed(demand_K), reversed(window_K), strict=True):
        if len(least_lax) == num_nodes - 1 and total + excess > window:
            return False
        total -= demand
        heapq.heappush(least_lax, demand - window)
        excess += demand - window
        if len(least_lax) == num_nodes:
            excess -= heapq.heappop(least_lax)
    return True


def _exact(
    demand_BK: np.ndarray, window_BK: np.ndarray, candidate_BK: np.ndarray, num_nodes: int
) -> np.ndarray:
    """The best of all subsets; the tasks are sorted by window, and no candidate is hopeless alone."""
    member_SK, widest_SK, within_SS = _subsets(candidate_BK.shape[1], num_nodes)
    kept_BK = candidate_BK.copy()
    crowded = np.flatnonzero(candidate_BK.sum(1) > num_nodes)  # fewer can have a node each
    overfull_ES = demand_BK[crowded] @ member_SK.T > window_BK[crowded] @ widest_SK.T
    for row in np.flatnonzero(overfull_ES.any(1)):
        episode = crowded[row]
        fits_S = ~within_SS[overfull_ES[row]].any(0)
        size_S = member_SK @ candidate_BK[episode]
        # Demands are under 2^20, so the size decides first and the total demand second.
        score_S = np.where(fits_S, size_S * 2.0**30 - member_SK @ demand_BK[episode], -np.inf)
        kept_BK[episode] &= member_SK[score_S.argmax()] > 0
    return kept_BK


@cache
def _subsets(num_slots: int, num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All subsets of K sorted slots: members, the M widest members, and whether row is within column."""
    number_S = np.arange(2**num_slots)
    member_SK = (number_S[:, None] >> np.arange(num_slots)) & 1
    wider_SK = member_SK[:, ::-1].cumsum(1)[:, ::-1]
    widest_SK = member_SK * (wider_SK <= num_nodes)
    within_SS = (number_S[:, None] & ~number_S) == 0
    return member_SK.astype(np.float64), widest_SK.astype(np.float64), within_SS


def _greedy(
    demand_BK: np.ndarray, window_BK: np.ndarray, candidate_BK: np.ndarray, num_nodes: int
) -> np.ndarray:
    kept_BK = np.zeros_like(candidate_BK)
    for episode, (demand_K, window_K) in enumerate(zip(demand_BK.tolist(), window_BK.tolist(), strict=True)):
        kept: list[int] = []
        for task in np.flatnonzero(candidate_BK[episode]).tolist():
            kept.append(task)
            if not fits([demand_K[k] for k in kept], [window_K[k] for k in kept], num_nodes):
                kept.remove(max(kept, key=lambda k: demand_K[k]))
        kept_BK[episode, kept] = True
    return kept_BK
