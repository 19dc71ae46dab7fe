"""Which steps hold a decision, and what is done in the others.

When all nodes are alike and switching is free, a step with no more tasks than nodes has one outcome:
every task is served. Such a step needs no policy.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.simulator.observe import Observation


def nodes_alike(config: SimulatorConfig) -> bool:
    """Whether it matters only which tasks are served, not where."""
    return config.switch_cost_steps == 0 and len(set(config.node_speeds or (1.0,))) == 1


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
