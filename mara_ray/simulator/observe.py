"""What an allocator may see, and nothing else: never the true demand or the unseen future.

Axis letters: B episodes, M nodes, K slots, N samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mara_ray.simulator.engine import Simulator


@dataclass(frozen=True)
class Observation:
    """One step of B episodes as an allocator sees it. Entries of empty slots are 0 (`task_BK`: -1)."""

    time_B: np.ndarray  # int32, the current step t
    active_BK: np.ndarray  # bool, the slot holds a task
    task_BK: np.ndarray  # int32, the task's number in its episode: its identity over time
    num_seen_BK: np.ndarray  # int32, points seen, the untrained loss included
    loss_BK: np.ndarray  # float32, the latest smoothed loss
    initial_loss_BK: np.ndarray  # float32
    target_BK: np.ndarray  # float32
    progress_BK: np.ndarray  # float32, log progress q in [0, 1]
    arrival_BK: np.ndarray  # int32, step of arrival
    deadline_BK: np.ndarray  # int32, steps d - 1 and before count
    remaining_BKN: np.ndarray  # float32, forecast steps still needed, sorted over samples
    node_slot_BM: np.ndarray  # int32, slot (1..K) the node served last, if that task is still there; else 0
    node_speed_M: np.ndarray  # float32, points of service per step
    num_waiting_B: np.ndarray  # int32, tasks in the outer queue
    episode_steps: int  # T
    cap_points: int  # L


class Forecasts(Protocol):
    """What `observe` asks of a forecast table."""

    def lookup(self, curve: np.ndarray, num_seen: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Steps still needed after `num_seen` points, float32 (..., N), sorted along N."""
        ...


def observe(simulator: Simulator, table: Forecasts) -> Observation:
    """What an allocator may see now, in arrays that stay as they are when the simulator moves on.

    Under run-time noise the losses are the noisy ones; the table's forecasts are those of the clean prefix.

    Args:
        simulator: after `reset`.
        table: forecasts of the bank that the simulator replays.
    """
    state, slots, ema_RL = simulator.state, simulator.state.slots, simulator.losses.ema_RL
    active_BK = slots.task >= 0
    seen_BK = np.maximum(slots.num_seen, 1)
    remaining_BKN = table.lookup(slots.curve, seen_BK, slots.level)
    return Observation(
        time_B=np.full(len(active_BK), state.time, np.int32),
        active_BK=active_BK,
        task_BK=slots.task.copy(),
        num_seen_BK=slots.num_seen.copy(),
        loss_BK=ema_RL[slots.row, seen_BK - 1] * active_BK,
        initial_loss_BK=slots.initial_loss.astype(np.float32),
        target_BK=slots.target.astype(np.float32),
        progress_BK=slots.progress.astype(np.float32),
        arrival_BK=slots.arrival.copy(),
        deadline_BK=slots.deadline.copy(),
        remaining_BKN=remaining_BKN * active_BK[:, :, None],
        node_slot_BM=state.node_slot_BM.copy(),
        node_speed_M=simulator.node_speed_M.astype(np.float32),
        num_waiting_B=state.waiting_BJ.sum(1, dtype=np.int32),
        episode_steps=simulator.episode_steps,
        cap_points=int(ema_RL.shape[1]),
    )
