"""Placement: which node each chosen task goes to. A task that is chosen again stays where it is.

Axis letters: B episodes, M nodes, K slots.
"""

from __future__ import annotations

import numpy as np

from mara_ray.simulator.observe import Observation


def place_by_priority(observation: Observation, *keys_BK: np.ndarray) -> np.ndarray:
    """Serve the M tasks with the smallest keys.

    A chosen task stays on the node that holds it; the others go to the free nodes, the fastest first.
    Keys are compared in the order given, and by age if all are equal, so no tie is left to chance.

    Returns:
        int64 (B, M): 0 for an idle node, k for slot k in 1..K; a matching, idle only when no task is free.
    """
    active_BK, held_BM = observation.active_BK, observation.node_slot_BM
    num_nodes = held_BM.shape[1]
    order_BK = np.lexsort((observation.task_BK, *reversed(keys_BK), ~active_BK), axis=1)
    rank_BK = np.argsort(order_BK, axis=1)
    chosen_BK = (rank_BK < num_nodes) & active_BK
    stays_BM = np.take_along_axis(np.pad(chosen_BK, ((0, 0), (1, 0))), held_BM, 1)
    action_BM = np.where(stays_BM, held_BM, 0).astype(np.int64)
    slot_K = np.arange(1, active_BK.shape[1] + 1)
    moving_BK = chosen_BK & ~(action_BM[:, :, None] == slot_K).any(1)
    queue_BK = np.argsort(np.where(moving_BK, rank_BK, len(slot_K)), axis=1, kind="stable")
    num_moving_B = moving_BK.sum(1)
    turn_B = np.zeros(len(active_BK), np.int64)
    row_B = np.arange(len(active_BK))
    for node in np.argsort(-observation.node_speed_M, kind="stable"):
        takes_B = ~stays_BM[:, node] & (turn_B < num_moving_B)
        next_B = queue_BK[row_B, np.minimum(turn_B, len(slot_K) - 1)] + 1
        action_BM[:, node] = np.where(takes_B, next_B, action_BM[:, node])
        turn_B += takes_B
    return action_BM
