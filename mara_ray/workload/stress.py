"""The stress test: tasks that cannot be done stand in front of those that can.

A method that serves tasks in order of arrival or of deadline spends all of its nodes on the infeasible
ones, until it is too late for the others.

Axis letters: B episodes, J tasks of an episode, C curves, G target levels, P (curve, level) pairs.
"""

from __future__ import annotations

import numpy as np

from mara_ray.config import WorkloadConfig
from mara_ray.errors import UserError
from mara_ray.seeding import generator
from mara_ray.workload.episodes import Workload, padded

NUM_TASKS, NUM_FEASIBLE = 20, 13
STRESS_STEPS = 205  # the least T of the stress test
SHARES = (0.3, 0.9)  # feasible shares of the family

# Four infeasible tasks hold four nodes until LONG_DEADLINE; three more crowd the slots until SHORT_DEADLINE.
LONG_DEADLINE, SHORT_DEADLINE = 200, 50
NUM_LONG = 4
DEMANDS = (20, 35)  # steps of the feasible tasks: too many for what is left after LONG_DEADLINE
ARRIVAL_GAP_STEPS = 8
FAMILY_WINDOWS = (40, 160)  # steps


def feasible_alone(workload: Workload, points_needed_CG: np.ndarray) -> np.ndarray:
    """Whether each task would finish with a speed-1 node to itself, bool (B, J); False for padding.

    Args:
        workload: the tasks.
        points_needed_CG: int, points that must be seen until each target is met, the untrained one included.
    """
    demand_BJ = points_needed_CG[workload.curve_BJ, workload.level_BJ] - 1
    feasible_BJ: np.ndarray = demand_BJ <= workload.deadline_BJ - workload.arrival_BJ
    return feasible_BJ & workload.real_BJ


def stress_test(points_needed_CG: np.ndarray, rows: np.ndarray, num_episodes: int, seed: int) -> Workload:
    """20 tasks an episode, 13 of them feasible, for M = 4 nodes, K = 8 slots and T of at least 205.

    All 13 can be done. FIFO and EDF do none: at every step before 200 the four oldest tasks, and the four
    with the nearest deadlines, are infeasible, and the 5 steps that are left then are too few. Curves and
    levels are drawn among those with the demand that each place asks for; arrivals and deadlines are fixed.

    Args:
        points_needed_CG: see `feasible_alone`.
        rows: curves to draw from, int.
        num_episodes: episodes B.
        seed: root of the draws.

    Raises:
        UserError: no (curve, level) pair has a demand that the test needs.
    """
    num_infeasible = NUM_TASKS - NUM_FEASIBLE
    arrival_J = np.repeat([0, 1], [num_infeasible, NUM_FEASIBLE])
    arrival_J[num_infeasible:] += ARRIVAL_GAP_STEPS * np.arange(NUM_FEASIBLE)
    deadline_J = np.repeat(
        [LONG_DEADLINE, SHORT_DEADLINE, STRESS_STEPS], [NUM_LONG, num_infeasible - NUM_LONG, NUM_FEASIBLE]
    )
    pairs = _Pairs(points_needed_CG, rows)
    episodes = []
    for episode in range(num_episodes):
        rng = generator(seed, "workload", "stress", episode)
        pair_J = [pairs.draw(rng, deadline + 1, None) for deadline in deadline_J[:num_infeasible]]
        pair_J += [pairs.draw(rng, *DEMANDS) for _ in range(NUM_FEASIBLE)]
        episodes.append(np.stack([arrival_J, deadline_J, *np.transpose(pair_J)]).astype(np.int32))
    return padded(episodes)


def check_share(share: float) -> None:
    """Refuse a feasible share that the random family does not have.

    Raises:
        UserError: it is out of range.
    """
    if not SHARES[0] <= share <= SHARES[1]:
        raise UserError(f"stress: a feasible share of {share} is not in {SHARES[0]}..{SHARES[1]}")


def stress_family(
    config: WorkloadConfig,
    points_needed_CG: np.ndarray,
    rows: np.ndarray,
    share: float,
    num_episodes: int,
    seed: int,
) -> Workload:
    """20 tasks an episode, of which round(20 share) are feasible alone, in random order.

    Arrivals are uniform over the first half of the episode, windows uniform over 40..160 steps and, like the
    places of the infeasible tasks, independent of everything else. Not all that are feasible alone need be
    feasible together.

    Args:
        config: T; at least 320 steps, so that no window is cut.
        points_needed_CG: see `feasible_alone`.
        rows: curves to draw from, int.
        share: feasible share, 0.3 to 0.9.
        num_episodes: episodes B.
        seed: root of the draws.

    Raises:
        UserError: the share is out of range, T is too short, or no pair has a demand that a task needs.
    """
    check_share(share)
    steps = config.episode_steps
    if steps < 2 * FAMILY_WINDOWS[1]:
        raise UserError(f"workload.episode_steps: {steps} is too short; take {2 * FAMILY_WINDOWS[1]} or more")
    pairs = _Pairs(points_needed_CG, rows)
    episodes = []
    for episode in range(num_episodes):
        rng = generator(seed, "workload", "stress_family", str(share), episode)
        arrival_J = np.sort(rng.integers(steps // 2, size=NUM_TASKS))
        window_J = rng.integers(FAMILY_WINDOWS[0], FAMILY_WINDOWS[1] + 1, size=NUM_TASKS)
        feasible_J = rng.permutation(NUM_TASKS) < round(NUM_TASKS * share)
        pair_J = [
            pairs.draw(rng, 1, window) if feasible else pairs.draw(rng, window + 1, None)
            for window, feasible in zip(window_J.tolist(), feasible_J, strict=True)
        ]
        episodes.append(np.stack([arrival_J, arrival_J + window_J, *np.transpose(pair_J)]).astype(np.int32))
    return padded(episodes)


class _Pairs:
    """The (curve, level) pairs of some curves, in order of demand."""

    def __init__(self, points_needed_CG: np.ndarray, rows: np.ndarray):
        demand_RG = points_needed_CG[rows].astype(np.int64) - 1
        order_P = np.argsort(demand_RG, axis=None, kind="stable")
        self._demand_P = demand_RG.ravel()[order_P]
        row_P, self._level_P = np.divmod(order_P, points_needed_CG.shape[1])
        self._curve_P = np.asarray(rows)[row_P]

    def draw(self, rng: np.random.Generator, least: int, most: int | None) -> tuple[int, int]:
        """A curve and a level with a demand of least..most steps (no upper end if None), uniform."""
        first = int(np.searchsorted(self._demand_P, least))
        behind = (
            len(self._demand_P) if most is None else int(np.searchsorted(self._demand_P, most, side="right"))
        )
        if first >= behind:
            wanted = f"{least} or more" if most is None else f"{least}..{most}"
            raise UserError(f"stress: no curve and target level need {wanted} steps; add curves or levels")
        pair = rng.integers(first, behind)
        return int(self._curve_P[pair]), int(self._level_P[pair])
