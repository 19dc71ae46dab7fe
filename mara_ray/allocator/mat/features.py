"""What the transformer reads of an observation: dimensionless numbers per slot, per node and per step.

Axis letters: B episodes, M nodes, K slots, N samples, D features.
"""

from __future__ import annotations

import numpy as np

from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import READY_POINTS

SLOT_FEATURES = 21
RANK_FEATURE = 19  # the column of the place in the urgency order, over M
NODE_FEATURES = 4
CONTEXT_FEATURES = 8

UNITS_PER_CAP = 4.0  # times are given in quarters of the cap

Features = dict[str, np.ndarray]


def encode(observation: Observation) -> Features:
    """Encode an observation.

    Returns:
        slot: float32 (B, K, SLOT_FEATURES), 0 for empty slots.
        node: float32 (B, M, NODE_FEATURES).
        context: float32 (B, CONTEXT_FEATURES).
        rank: int64 (B, K), the place 0.. of a task in the order of `urgency_rank`; K for an empty slot.
        serving: int64 (B, M), the slot (1..K) a node served last, or 0.
    """
    rank_BK = urgency_rank(observation)
    return {
        "slot": _slot_features(observation, rank_BK),
        "node": _node_features(observation),
        "context": _context_features(observation),
        "rank": rank_BK,
        "serving": observation.node_slot_BM.astype(np.int64),
    }


def service_index(observation: Observation) -> np.ndarray:
    """The most that serving a task can be expected to yield: completions per step, float64 (B, K).

    max over tau <= time left of P(R <= tau) / E[min(R, tau)], R being the forecast's samples: Gittins'
    index of a job of unknown length, with a deadline. 0 for a task that no sample finishes in time.
    """
    samples_BKN = observation.remaining_BKN.astype(np.float64)
    left_BK = observation.deadline_BK - observation.time_B[:, None]
    cap_BK = observation.cap_points - observation.num_seen_BK
    tau_BKN1 = samples_BKN[..., None]
    chance_BKN = (samples_BKN[..., None, :] <= tau_BKN1).mean(-1)
    spent_BKN = np.minimum(samples_BKN[..., None, :], tau_BKN1).mean(-1)
    possible_BKN = (samples_BKN <= left_BK[..., None]) & (samples_BKN < cap_BK[..., None])
    return np.where(possible_BKN, chance_BKN / np.maximum(spent_BKN, 1), 0).max(-1)


def urgency_rank(observation: Observation) -> np.ndarray:
    """Order the tasks of each episode: unforecast ones first, then by `service_index`, oldest first.

    A fixed order, known to the rollout and the learner alike, so that of the M! equivalent assignments
    of alike nodes one can be singled out; the decoder's scores start from it.

    Returns:
        int64 (B, K), K for an empty slot.
    """
    unforecast_BK = observation.num_seen_BK < READY_POINTS
    index_BK = np.where(unforecast_BK, np.inf, service_index(observation))
    order_BK = np.lexsort((observation.task_BK, -index_BK, ~observation.active_BK), axis=-1)
    num_slots = order_BK.shape[1]
    rank_BK = np.empty(order_BK.shape, np.int64)
    np.put_along_axis(rank_BK, order_BK, np.broadcast_to(np.arange(num_slots), order_BK.shape), -1)
    return np.where(observation.active_BK, rank_BK, num_slots)


def _slot_features(observation: Observation, rank_BK: np.ndarray) -> np.ndarray:
    cap, unit = observation.cap_points, observation.cap_points / UNITS_PER_CAP
    remaining_BKN, seen_BK = observation.remaining_BKN, observation.num_seen_BK
    median_BK = _median(remaining_BKN)
    left_BK = np.where(observation.active_BK, observation.deadline_BK - observation.time_B[:, None], 1)
    late_BKN = remaining_BKN > left_BK[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap_BK = np.log(observation.loss_BK / observation.target_BK)
        depth_BK = np.log(observation.initial_loss_BK / observation.target_BK)
    columns = (
        np.log1p(median_BK) / np.log1p(cap),
        median_BK / unit,
        remaining_BKN[..., 0] / unit,
        remaining_BKN[..., -1] / unit,
        (remaining_BKN[..., -1] - remaining_BKN[..., 0]) / unit,
        left_BK / unit,
        np.clip((left_BK - median_BK) / unit, -2, 2),
        np.clip(median_BK / left_BK, 0, 3),
        np.sqrt(service_index(observation) * unit) / 4,
        1 - late_BKN.mean(-1),
        median_BK <= left_BK,
        seen_BK < READY_POINTS,
        median_BK >= cap - seen_BK,
        np.log1p(seen_BK) / np.log1p(cap),
        observation.progress_BK,
        np.clip(gap_BK, -3, 3),
        np.clip(depth_BK, -3, 3),
        (observation.time_B[:, None] - observation.arrival_BK) / unit,
        _served(observation),
        rank_BK / observation.node_slot_BM.shape[1],
        rank_BK < observation.node_slot_BM.shape[1],
    )
    slot_BKD = np.stack(columns, -1).astype(np.float32)
    return np.where(observation.active_BK[..., None], slot_BKD, np.float32(0))


def _node_features(observation: Observation) -> np.ndarray:
    num_episodes, num_nodes = observation.node_slot_BM.shape
    speed_M = observation.node_speed_M
    columns = (
        np.broadcast_to(speed_M / speed_M.mean() - 1, (num_episodes, num_nodes)),
        observation.node_slot_BM > 0,
        np.broadcast_to(np.arange(num_nodes) / num_nodes, (num_episodes, num_nodes)),
        np.ones((num_episodes, num_nodes)),
    )
    return np.stack(columns, -1).astype(np.float32)


def _context_features(observation: Observation) -> np.ndarray:
    unit = observation.cap_points / UNITS_PER_CAP
    num_nodes, num_slots = observation.node_slot_BM.shape[1], observation.active_BK.shape[1]
    to_go_B = observation.episode_steps - observation.time_B
    active_BK = observation.active_BK
    left_BK = observation.deadline_BK - observation.time_B[:, None]
    median_BK = _median(observation.remaining_BKN)
    feasible_BK = active_BK & (median_BK <= left_BK)
    demand_B = np.where(feasible_BK, median_BK, 0).sum(1)
    columns = (
        observation.time_B / observation.episode_steps,
        np.clip(to_go_B / unit, 0, 4) / 4,
        active_BK.sum(1) / num_slots,
        feasible_BK.sum(1) / num_nodes,
        demand_B / (unit * num_nodes),
        (active_BK & (observation.num_seen_BK < READY_POINTS)).sum(1) / num_nodes,
        np.clip(observation.num_waiting_B / num_slots, 0, 3),
        (active_BK.sum(1) - num_nodes) / num_nodes,
    )
    return np.stack(columns, -1).astype(np.float32)


def _served(observation: Observation) -> np.ndarray:
    slots_K = np.arange(1, observation.active_BK.shape[1] + 1)
    return (observation.node_slot_BM[:, :, None] == slots_K).any(1)


def _median(samples_BKN: np.ndarray) -> np.ndarray:
    """The median of sorted samples."""
    num_samples = samples_BKN.shape[-1]
    return (samples_BKN[..., (num_samples - 1) // 2] + samples_BKN[..., num_samples // 2]) / 2
