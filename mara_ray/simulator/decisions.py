"""Which steps ask for a decision, and what is done in the others.

When all nodes are alike and switching is free, a step with no more tasks than nodes has one outcome:
every task is served. Such a step needs no policy. And a policy that learns holds to its decisions for
some steps, so that a choice has consequences that can be told from chance.

Axis letters: B episodes, M nodes, K slots, R episodes with a decision to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.errors import UserError
from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import READY_POINTS


def nodes_alike(config: SimulatorConfig) -> bool:
    """Whether it matters only which tasks are served, not where."""
    no_cost = config.switch_cost_steps == 0 and config.migration_cost_steps == 0
    return no_cost and len(set(config.node_speeds or (1.0,))) == 1


def has_choice(observation: Observation, alike: bool) -> np.ndarray:
    """Whether the outcome of the step can depend on the assignment, bool (B,)."""
    num_tasks_B = observation.active_BK.sum(1)
    return num_tasks_B > (observation.node_slot_BM.shape[1] if alike else 0)


def forced_action(observation: Observation) -> np.ndarray:
    """The first M tasks in slot order, int64 (B, M): all of them, where there is no choice."""
    num_nodes = observation.node_slot_BM.shape[1]
    order_BK = np.argsort(~observation.active_BK, axis=1, kind="stable")[:, :num_nodes]
    action_BK = np.where(np.take_along_axis(observation.active_BK, order_BK, 1), order_BK + 1, 0)
    return np.pad(action_BK, ((0, 0), (0, num_nodes - action_BK.shape[1])))


def at_rows(observation: Observation, rows: np.ndarray) -> Observation:
    """The observation of some of the episodes."""
    per_episode = [field.name for field in fields(observation) if "_B" in field.name]
    return replace(observation, **{name: getattr(observation, name)[rows] for name in per_episode})


def settled(choices: Sequence[int | None], active_K: np.ndarray) -> np.ndarray:
    """A matching, int64 (M,), from choices that nodes made apart: 0 is idle, k is slot k in 1..K.

    In the order of nodes, the choice of an empty slot or of one that is taken already counts as 0.

    Args:
        choices: of each node; None if it made none.
        active_K: bool, the slot holds a task.

    Raises:
        UserError: a node made no choice, or one outside 0..K.
    """
    is_free = [True, *active_K.tolist()]
    action_M = np.zeros(len(choices), np.int64)
    for node, choice in enumerate(choices):
        if choice is None or not 0 <= choice <= len(active_K):
            raise UserError(
                f"action: {choice} of node {node} is no choice; give every node 0 (idle) or a slot"
                f" 1..{len(active_K)}"
            )
        if is_free[choice]:
            action_M[node] = choice
            is_free[choice] = choice == 0
    return action_M


class Decisions:
    """Asks for the decisions of B episodes, and completes them to an action for every node.

    A decision is asked for where the outcome depends on it and the tasks have changed, one of them has
    become ready for a forecast, or the last decision is `decision_steps` old; until then it is held.
    """

    _tasks_BK: np.ndarray
    _age_B: np.ndarray
    _held_BM: np.ndarray
    _choice_B: np.ndarray

    def __init__(self, alike: bool, decision_steps: int) -> None:
        self._alike, self._decision_steps = alike, decision_steps
        self.reset()

    def reset(self) -> None:
        """Forget what was decided."""
        self._is_fresh = True

    def due(self, observation: Observation) -> np.ndarray:
        """The numbers R of the episodes that ask for a decision now; call it once a step."""
        if self._is_fresh:
            self._is_fresh = False
            self._tasks_BK = np.full_like(observation.task_BK, -1)
            self._held_BM = np.zeros(observation.node_slot_BM.shape, np.int64)
            self._age_B = np.zeros(len(self._tasks_BK), np.int64)
        tasks_BK = 2 * observation.task_BK + (observation.num_seen_BK >= READY_POINTS)
        due_B = (tasks_BK != self._tasks_BK).any(1) | (self._age_B >= self._decision_steps)
        self._tasks_BK = tasks_BK
        self._choice_B = has_choice(observation, self._alike)
        return np.flatnonzero(self._choice_B & due_B)

    def complete(self, rows: np.ndarray, action_RM: np.ndarray, observation: Observation) -> np.ndarray:
        """The action of every node, int64 (B, M), given the decisions of the episodes `rows`."""
        self._held_BM[rows] = action_RM
        self._age_B += 1
        self._age_B[rows] = 1
        return np.where(self._choice_B[:, None], self._held_BM, forced_action(observation))
