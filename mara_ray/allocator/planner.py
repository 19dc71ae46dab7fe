"""The planner: the subset of the active tasks that the forecasts' samples say is worth most.

Axis letters: B episodes, R of them that plan anew, M nodes, K slots, N samples, S subsets.
"""

from __future__ import annotations

import numpy as np

from mara_ray.allocator.demand import Outlook
from mara_ray.allocator.placement import place_by_priority
from mara_ray.simulator.observe import Observation

MOST_SLOTS_EXACT = 12  # up to here all 2^K subsets are looked at
PLAN_STEPS = 10  # a plan is kept until the tasks change, or for so long
LOAD_WEIGHT = 1e-4  # of a step of demand against a task on time: of equally good subsets the least
EXPLORE, PLANNED, SPARE = 0, 1, 2


class Planner:
    """Commits to the subset with the greatest expected number of tasks on time.

    In each sample a subset is served in order of its deadlines, each task by the node that is free first,
    as if no task came any more. Up to 12 slots all subsets are tried; with more, tasks join one by one,
    each time the one that adds most, as long as one adds something. Tasks that are not forecast yet come
    first, oldest first; then the subset by deadline; nodes that are left take the rest, the least demand
    first.
    """

    def __init__(self, name: str = "planner") -> None:
        self.name = name

    def reset(self, num_episodes: int) -> None:
        """Forget the plans."""
        self._task_BK = np.zeros((num_episodes, 0), np.int32)
        self._age_B = np.full(num_episodes, PLAN_STEPS)

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the M tasks that are first in that order; see `Allocator.allocate`."""
        outlook = Outlook.of(observation)
        stale_B = self._stale(observation, outlook)
        rows = np.flatnonzero(stale_B)
        if len(rows):
            speed = observation.node_speed_M.mean(dtype=np.float64)
            self._planned_BK[rows] = best_subsets(
                np.ceil(observation.remaining_BKN[rows] / speed),
                outlook.window_BK[rows],
                outlook.known_BK[rows],
                observation.node_slot_BM.shape[1],
            )
            self._age_B[rows] = 0
        self._age_B += 1
        phase_BK = np.where(outlook.known_BK, np.where(self._planned_BK, PLANNED, SPARE), EXPLORE)
        key_BK = np.choose(phase_BK, [observation.arrival_BK, outlook.window_BK, outlook.demand_BK])
        return place_by_priority(observation, phase_BK, key_BK)

    def _stale(self, observation: Observation, outlook: Outlook) -> np.ndarray:
        """Episodes whose plan is missing, old, or made for other tasks: bool (B,)."""
        task_BK = np.where(outlook.known_BK, observation.task_BK, -1)
        if self._task_BK.shape != task_BK.shape:  # the first step
            self._task_BK, self._planned_BK = task_BK, np.zeros(task_BK.shape, bool)
        stale_B = (self._age_B >= PLAN_STEPS) | (self._task_BK != task_BK).any(1)
        self._task_BK = task_BK
        return stale_B


def best_subsets(
    demand_RKN: np.ndarray, window_RK: np.ndarray, candidate_RK: np.ndarray, num_nodes: int
) -> np.ndarray:
    """The subsets of candidates with the greatest expected number on time; of equals, the least demand.

    Args:
        demand_RKN: sampled steps still needed.
        window_RK: steps until the deadline.
        candidate_RK: bool, tasks to choose from.
        num_nodes: M.

    Returns:
        bool (R, K).
    """
    num_slots = candidate_RK.shape[1]
    order_RK = np.argsort(np.where(candidate_RK, window_RK, np.iinfo(np.int32).max), axis=1, kind="stable")
    demand_RKN = np.take_along_axis(demand_RKN, order_RK[..., None], 1)
    window_RK, usable_RK = (np.take_along_axis(x, order_RK, 1) for x in (window_RK, candidate_RK))
    # A task that no sample lets finish even alone is never worth its place.
    usable_RK = usable_RK & (demand_RKN <= window_RK[..., None]).any(2)
    chosen_RK = np.zeros(candidate_RK.shape, bool)
    choose = _exact if num_slots <= MOST_SLOTS_EXACT else _greedy
    for row in range(len(candidate_RK)):
        tasks = np.flatnonzero(usable_RK[row])  # still by deadline
        if len(tasks):
            picked = choose(demand_RKN[row, tasks], window_RK[row, tasks], num_nodes)
            chosen_RK[row, order_RK[row, tasks[picked]]] = True
    return chosen_RK


def subset_values(
    member_SK: np.ndarray, demand_KN: np.ndarray, window_K: np.ndarray, num_nodes: int
) -> np.ndarray:
    """Expected tasks on time of subsets of tasks sorted by deadline, less `LOAD_WEIGHT` of demand: (S,)."""
    num_samples = demand_KN.shape[1]
    free_SNM = np.zeros((len(member_SK), num_samples, num_nodes))
    value_S = -LOAD_WEIGHT * (member_SK @ demand_KN.mean(1))
    for task, (demand_N, window) in enumerate(zip(demand_KN, window_K, strict=True)):
        having = np.flatnonzero(member_SK[:, task])
        part_XNM = free_SNM[having]
        node_XN1 = part_XNM.argmin(2)[..., None]
        end_XN1 = np.take_along_axis(part_XNM, node_XN1, 2) + demand_N[None, :, None]
        np.put_along_axis(part_XNM, node_XN1, end_XN1, 2)
        free_SNM[having] = part_XNM
        value_S[having] += (end_XN1[..., 0] <= window).mean(1)
    return value_S


def _exact(demand_KN: np.ndarray, window_K: np.ndarray, num_nodes: int) -> np.ndarray:
    num_tasks = len(window_K)
    if num_tasks <= num_nodes:  # a node each
        return np.arange(num_tasks)
    member_SK = (np.arange(2**num_tasks)[:, None] >> np.arange(num_tasks)) & 1
    best = subset_values(member_SK, demand_KN, window_K, num_nodes).argmax()
    return np.flatnonzero(member_SK[best])


def _greedy(demand_KN: np.ndarray, window_K: np.ndarray, num_nodes: int) -> np.ndarray:
    chosen_K, value = np.zeros(len(window_K), np.int64), 0.0
    while not chosen_K.all():
        member_SK = chosen_K | np.eye(len(window_K), dtype=np.int64)
        value_S = np.where(chosen_K, -np.inf, subset_values(member_SK, demand_KN, window_K, num_nodes))
        if value_S.max() <= value:
            break
        value = float(value_S.max())
        chosen_K = member_SK[value_S.argmax()]
    return np.flatnonzero(chosen_K)
