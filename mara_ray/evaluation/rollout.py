"""Play frozen episodes to their end under one allocator.

Axis letters: B episodes, M nodes, K slots, J tasks of an episode, T steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mara_ray.allocator.protocol import Allocator
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.observe import Forecasts, observe
from mara_ray.simulator.state import Outcomes
from mara_ray.workload.episodes import Workload


@dataclass(frozen=True)
class Rollout:
    """What happened in B episodes.

    Attributes:
        workload: the tasks that came.
        outcomes: what became of them, and the counters of the engine.
        node_task_TBM: the task each node worked on in each step, int16; -1 for none.
    """

    workload: Workload
    outcomes: Outcomes
    node_task_TBM: np.ndarray


def rollout(simulator: Simulator, table: Forecasts, allocator: Allocator, workload: Workload) -> Rollout:
    """Play a workload from step 0 to step T, all episodes at once.

    Args:
        simulator: the pool of nodes; it is reset.
        table: the forecasts the allocator is fed.
        allocator: who gets which node; it is reset.
        workload: the episodes.

    Raises:
        UserError: the allocator's joint action is not a matching.
    """
    simulator.reset(workload)
    allocator.reset(workload.num_episodes)
    node_task_TBM = []
    while not simulator.done:
        observation = observe(simulator, table)
        action_BM = allocator.allocate(observation)
        slot_task_BK = np.pad(observation.task_BK, ((0, 0), (1, 0)), constant_values=-1)
        node_task_TBM.append(np.take_along_axis(slot_task_BK, action_BM, 1).astype(np.int16))
        simulator.step(action_BM)
    return Rollout(workload, simulator.state.outcomes, np.stack(node_task_TBM))
