"""The engine: one step of B episodes at once, in numpy. `reference.py` is its readable specification.

Step order: observe, allocate, serve (a switch may cost steps), success check, t += 1, expiry, admit.
Axis letters: B episodes, M nodes, K slots, J tasks of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.errors import UserError
from mara_ray.simulator.reward import inverse_log_range, log_progress, shaped_reward
from mara_ray.simulator.state import READY_POINTS, CurveReplay, SimulatorState
from mara_ray.workload.episodes import Workload


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """What one step brought."""

    reward_B: np.ndarray  # float64
    num_completed_B: np.ndarray  # int64, tasks that met their target in this step
    num_expired_B: np.ndarray  # int64, tasks lost in this step, in slots or waiting


class Simulator:
    """M nodes, K slots and an outer queue, for B episodes in step with one another.

    Attributes:
        config: the pool of nodes.
        episode_steps: T.
        replay: the frozen curves.
        node_speed_M: float64, points of service per step.
        workload: the tasks of the present episodes.
        state: see `SimulatorState`; read it, let `step` write it.
    """

    workload: Workload
    state: SimulatorState

    def __init__(self, config: SimulatorConfig, episode_steps: int, replay: CurveReplay):
        """Make a simulator; `reset` starts episodes.

        Raises:
            UserError: `node_speeds` does not name a speed for each node.
        """
        speeds = config.node_speeds or (1.0,) * config.num_nodes
        if len(speeds) != config.num_nodes:
            raise UserError(
                f"simulator.node_speeds: {len(speeds)} speeds for {config.num_nodes} nodes;"
                " give one for each node, or null"
            )
        self.config = config
        self.episode_steps = episode_steps
        self.replay = replay
        self.node_speed_M = np.array(speeds, np.float64)

    @property
    def done(self) -> bool:
        """Whether step T is reached."""
        return self.state.time >= self.episode_steps

    def reset(self, workload: Workload) -> None:
        """Start the workload's episodes at step 0 and admit the first arrivals.

        Raises:
            UserError: a task is on an unknown curve or target level.
        """
        workload.check_bank(*self.replay.target_CG.shape)
        self.workload = workload
        num_episodes, num_tasks = workload.arrival_BJ.shape
        num_nodes, num_slots = self.config.num_nodes, self.config.num_slots
        self.state = SimulatorState.start(num_episodes, num_nodes, num_slots, num_tasks)
        self._deadline_BJ = np.minimum(workload.deadline_BJ, self.episode_steps)
        self._row_B1 = np.arange(num_episodes)[:, None] * (num_slots + 1)
        self._admit()

    def step(self, action_BM: np.ndarray) -> StepOutcome:
        """Move all episodes on by one step.

        Args:
            action_BM: int, 0 for an idle node, k for slot k in 1..K.

        Raises:
            UserError: the episodes are over, or the action is not a matching of nodes and tasks.
        """
        if self.done:
            raise UserError(f"step: episodes end after {self.episode_steps} steps; call reset")
        slots = self.state.slots
        active_BK = slots.task >= 0
        count_BK = self._checked_count(action_BM, active_BK)
        self._count_step(action_BM, active_BK)
        potential_B = slots.progress.sum(1)
        self._serve(action_BM, count_BK)
        finished_BK = active_BK & (slots.num_seen >= slots.points_needed)
        now = self.state.time
        self.state.time = now + 1
        expired_BK = active_BK & (slots.deadline <= now + 1) & ~finished_BK
        self._leave(finished_BK, expired_BK, now)
        num_lost_B = self._admit()
        num_completed_B = finished_BK.sum(1)
        reward_B = shaped_reward(
            num_completed_B, potential_B, slots.progress.sum(1), self.config.potential_weight
        )
        return StepOutcome(reward_B, num_completed_B, expired_BK.sum(1) + num_lost_B)

    def _checked_count(self, action_BM: np.ndarray, active_BK: np.ndarray) -> np.ndarray:
        """Nodes on each slot, int (B, K); refuses what is not a matching."""
        num_episodes, num_slots = active_BK.shape
        shape = (num_episodes, self.config.num_nodes)
        if action_BM.shape != shape or action_BM.dtype.kind not in "iu":
            found = f"{action_BM.dtype} {action_BM.shape}"
            raise UserError(f"action: {found} at step {self.state.time} is not an integer array {shape}")
        if action_BM.min(initial=0) < 0 or action_BM.max(initial=0) > num_slots:
            self._refuse(action_BM, (action_BM < 0) | (action_BM > num_slots), "is not a slot")
        flat = (action_BM + self._row_B1).ravel()
        count_BK = np.bincount(flat, minlength=self._row_B1.size * (num_slots + 1))
        count_BK = count_BK.reshape(num_episodes, num_slots + 1)[:, 1:]
        if (count_BK > active_BK).any():
            bad_BK = np.pad(count_BK > active_BK, ((0, 0), (1, 0)))
            bad_BM = np.take_along_axis(bad_BK, action_BM.astype(np.int64), 1)
            self._refuse(action_BM, bad_BM, "is an empty slot, or one that two nodes take")
        return count_BK

    def _refuse(self, action_BM: np.ndarray, bad_BM: np.ndarray, why: str) -> None:
        episode, node = (int(place) for place in np.argwhere(bad_BM)[0])
        raise UserError(
            f"action: {int(action_BM[episode, node])} of node {node} in episode {episode}"
            f" at step {self.state.time} {why}; give 0 or a free task's slot"
        )

    def _count_step(self, action_BM: np.ndarray, active_BK: np.ndarray) -> None:
        outcomes = self.state.outcomes
        num_active_B = active_BK.sum(1)
        busy_BM = action_BM > 0
        num_busy_B = busy_BM.sum(1)
        outcomes.full_steps_B += num_active_B == active_BK.shape[1]
        outcomes.busy_steps_B += num_busy_B
        outcomes.waiting_steps_B += num_active_B + self.state.waiting_BJ.sum(1) - num_busy_B
        outcomes.switches_B += (busy_BM & (action_BM != self.state.node_slot_BM)).sum(1)

    def _serve(self, action_BM: np.ndarray, count_BK: np.ndarray) -> None:
        """Give every slot its node's service, and note which node now holds which task."""
        state, slots = self.state, self.state.slots
        num_slots = count_BK.shape[1]
        busy_BM = action_BM > 0
        taken_up_BM = busy_BM & (action_BM != state.node_slot_BM)
        state.node_delay_BM[taken_up_BM] = self.config.switch_cost_steps
        owes_BM = busy_BM & (state.node_delay_BM > 0)
        state.node_delay_BM -= owes_BM
        rate_BM = np.where(busy_BM & ~owes_BM, self.node_speed_M, 0.0)
        rate_BK = np.bincount(
            (action_BM + self._row_B1).ravel(), rate_BM.ravel(), minlength=self._row_B1.size * (num_slots + 1)
        ).reshape(-1, num_slots + 1)[:, 1:]
        self._note_first_times(rate_BK)
        # An idle node keeps its task in memory until another node takes the task up.
        gone_BK = np.pad(count_BK > 0, ((0, 0), (1, 0)))
        kept_BM = np.where(np.take_along_axis(gone_BK, state.node_slot_BM, 1), 0, state.node_slot_BM)
        state.node_slot_BM = np.where(busy_BM, action_BM, kept_BM).astype(np.int32)
        log_loss_BK = self.replay.log_ema_CL[slots.curve, slots.num_seen - 1]
        slots.progress = log_progress(slots.log_initial, log_loss_BK, slots.log_target, slots.inverse_range)

    def _note_first_times(self, rate_BK: np.ndarray) -> None:
        """Add the service, and record when a task is first served and when it is ready for a forecast."""
        slots, outcomes, now = self.state.slots, self.state.outcomes, self.state.time
        fresh_BK = (slots.service == 0) & (rate_BK > 0)
        unready_BK = slots.num_seen < READY_POINTS
        slots.service += rate_BK
        # An empty slot has seen 0 points; 1 + service would make it 1.
        seen_BK = np.minimum(slots.service + 1, self.replay.ema_CL.shape[1]).astype(np.int32)
        slots.num_seen = np.where(slots.task >= 0, seen_BK, 0).astype(np.int32)
        ready_BK = unready_BK & (slots.num_seen >= READY_POINTS)
        for first_BK, step_BJ in ((fresh_BK, outcomes.started_BJ), (ready_BK, outcomes.ready_BJ)):
            episode, slot = np.nonzero(first_BK)
            step_BJ[episode, slots.task[episode, slot]] = now

    def _leave(self, finished_BK: np.ndarray, expired_BK: np.ndarray, now: int) -> None:
        """Empty the slots of finished and expired tasks, and free the nodes that hold them."""
        state, slots, outcomes = self.state, self.state.slots, self.state.outcomes
        left_BK = finished_BK | expired_BK
        episode, slot = np.nonzero(left_BK)
        if len(episode) == 0:
            return
        task = slots.task[episode, slot]
        outcomes.finished_BJ[episode, task] = np.where(finished_BK[episode, slot], now, -1)
        outcomes.service_BJ[episode, task] = slots.service[episode, slot]
        slots.clear(episode, slot)
        held_BM = np.take_along_axis(np.pad(left_BK, ((0, 0), (1, 0))), state.node_slot_BM, 1)
        state.node_slot_BM[held_BM] = 0

    def _admit(self) -> np.ndarray:
        """Expire waiting tasks, queue the arrivals of this step, fill free slots in order of arrival.

        Returns:
            Tasks lost, int (B,): those expired while waiting and, with overflow "drop", those without a slot.
        """
        state = self.state
        waiting_BJ = state.waiting_BJ
        late_BJ = waiting_BJ & (self._deadline_BJ <= state.time)
        num_lost_B = late_BJ.sum(1)
        waiting_BJ &= ~late_BJ
        if not self.done:
            waiting_BJ |= self.workload.arrival_BJ == state.time
        while True:
            free_BK = state.slots.task < 0
            episode = np.flatnonzero(waiting_BJ.any(1) & free_BK.any(1))
            if len(episode) == 0:
                break
            task = waiting_BJ[episode].argmax(1)
            self._enter(episode, free_BK[episode].argmax(1), task)
            waiting_BJ[episode, task] = False
        if self.config.overflow == "drop":
            num_lost_B = num_lost_B + waiting_BJ.sum(1)
            waiting_BJ[:] = False
        return num_lost_B

    def _enter(self, episode: np.ndarray, slot: np.ndarray, task: np.ndarray) -> None:
        """Put one task into one slot of each of the episodes."""
        slots, replay, workload = self.state.slots, self.replay, self.workload
        place = (episode, slot)
        curve, level = workload.curve_BJ[episode, task], workload.level_BJ[episode, task]
        log_initial, log_target = replay.log_ema_CL[curve, 0], replay.log_target_CG[curve, level]
        slots.task[place] = task
        slots.curve[place] = curve
        slots.level[place] = level
        slots.arrival[place] = workload.arrival_BJ[episode, task]
        slots.deadline[place] = self._deadline_BJ[episode, task]
        slots.points_needed[place] = replay.points_needed_CG[curve, level]
        slots.num_seen[place] = 1
        slots.log_initial[place] = log_initial
        slots.log_target[place] = log_target
        slots.inverse_range[place] = inverse_log_range(log_initial, log_target)
        slots.initial_loss[place] = replay.ema_CL[curve, 0]
        slots.target[place] = replay.target_CG[curve, level]
