"""The engine: one step of B episodes at once, in numpy. `reference.py` is its readable specification.

Step order: observe, allocate, serve (a switch or move may cost steps), success check, t += 1, expiry, admit.
Axis letters: B episodes, M nodes, K slots, J tasks of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.errors import UserError
from mara_ray.simulator.losses import TaskLosses, fresh_tasks
from mara_ray.simulator.reward import log_progress, shaped_reward
from mara_ray.simulator.state import READY_POINTS, CurveReplay, SimulatorState
from mara_ray.workload.episodes import Workload


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """What one step brought."""

    reward_B: np.ndarray  # float64
    num_completed_B: np.ndarray  # int64, tasks that met their target in this step
    num_expired_B: np.ndarray  # int64, tasks lost in this step, in slots or outside


class Simulator:
    """M nodes, K slots and an outer queue, for B episodes in step with one another.

    Attributes:
        config: the pool of nodes.
        episode_steps: T.
        replay: the frozen curves.
        node_speed_M: float64, points of service per step.
        workload: the tasks of the present episodes.
        losses: what these tasks show when they are served.
        state: see `SimulatorState`; read it, let `step` write it.
    """

    workload: Workload
    losses: TaskLosses
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

        Arrivals of step 0 that overflow "drop" loses here are in no step's outcome.

        Raises:
            UserError: a task is on an unknown curve or target level, or noise is asked for and the curves
                have no raw losses.
        """
        workload.check_bank(*self.replay.target_CG.shape)
        num_episodes, num_tasks = workload.arrival_BJ.shape
        num_nodes, num_slots = self.config.num_nodes, self.config.num_slots
        self.workload = workload
        self.state = SimulatorState.start(num_episodes, num_nodes, num_slots, num_tasks)
        self.losses = TaskLosses.of(self.config, self.replay, workload)
        self._tasks = fresh_tasks(workload, self.losses, self.replay.target_CG, self.episode_steps)
        self._potential_B = np.zeros(num_episodes)
        self._row_B1 = np.arange(num_episodes)[:, None] * (num_slots + 1)
        # All tasks in order of arrival, and where those of each step begin; padding (-1) is in front.
        order = np.argsort(workload.arrival_BJ, axis=None, kind="stable")
        self._arriving = np.divmod(order, num_tasks)
        self._first_of_step = np.searchsorted(
            workload.arrival_BJ.ravel()[order], np.arange(self.episode_steps + 1)
        )
        self._admit()

    def step(self, action_BM: np.ndarray) -> StepOutcome:
        """Move all episodes on by one step.

        Args:
            action_BM: int, 0 for an idle node, k for slot k in 1..K.

        Raises:
            UserError: the episodes are over, or the action is not a matching of nodes and tasks.
        """
        if self.done:
            raise UserError(f"step: the episodes ended at step {self.episode_steps}; reset the simulator")
        if action_BM.dtype.kind == "u":
            action_BM = action_BM.astype(np.int64)  # k - 1 must not wrap around
        active_BK = self.state.slots.task >= 0
        flat_BM, nodes_B_K1 = self._place_nodes(action_BM, active_BK)
        self._switch(action_BM, flat_BM, nodes_B_K1, active_BK)
        self._serve(action_BM, flat_BM)
        completed_B, expired_B = self._leave(active_BK)
        self.state.time += 1
        expired_B += self._admit()
        before_B, self._potential_B = self._potential_B, self.state.slots.progress.sum(1)
        reward_B = shaped_reward(completed_B, before_B, self._potential_B, self.config.potential_weight)
        return StepOutcome(reward_B, completed_B, expired_B)

    def _place_nodes(self, action_BM: np.ndarray, active_BK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Check the action; where it points in a flat (B, K + 1), and the nodes at each entry there."""
        num_episodes, num_slots = active_BK.shape
        shape = (num_episodes, self.config.num_nodes)
        if action_BM.shape != shape or action_BM.dtype.kind != "i":
            found = f"{action_BM.dtype} {action_BM.shape}"
            raise UserError(f"action: {found} at step {self.state.time} is not an integer array {shape}")
        if action_BM.min(initial=0) < 0 or action_BM.max(initial=0) > num_slots:
            self._refuse(action_BM, (action_BM < 0) | (action_BM > num_slots), "is not a slot")
        flat_BM = action_BM + self._row_B1
        nodes_B_K1 = self._sum_over_nodes(flat_BM, None)
        wrong_BK = nodes_B_K1[:, 1:] > active_BK
        if wrong_BK.any():
            wrong_BM = (action_BM > 0) & wrong_BK[np.arange(num_episodes)[:, None], action_BM - 1]
            self._refuse(action_BM, wrong_BM, "is an empty slot, or the slot of two nodes")
        return flat_BM, nodes_B_K1

    def _refuse(self, action_BM: np.ndarray, wrong_BM: np.ndarray, why: str) -> None:
        episode, node = (int(place) for place in np.argwhere(wrong_BM)[0])
        raise UserError(
            f"action: {int(action_BM[episode, node])} of node {node} in episode {episode}"
            f" at step {self.state.time} {why}; choose 0 or the slot of a free task"
        )

    def _sum_over_nodes(self, flat_BM: np.ndarray, amount_BM: np.ndarray | None) -> np.ndarray:
        """Add up what nodes give to each slot (1 each if None), (B, K + 1); entry 0 is for idle nodes."""
        num_entries = self.config.num_slots + 1
        amounts = None if amount_BM is None else amount_BM.ravel()
        total = np.bincount(flat_BM.ravel(), amounts, minlength=len(flat_BM) * num_entries)
        return total.reshape(-1, num_entries)

    def _switch(
        self, action_BM: np.ndarray, flat_BM: np.ndarray, nodes_B_K1: np.ndarray, active_BK: np.ndarray
    ) -> None:
        """Let nodes take up their tasks, and count the step."""
        state, outcomes = self.state, self.state.outcomes
        busy_BM = action_BM > 0
        taken_up_BM = busy_BM & (action_BM != state.node_slot_BM)
        np.copyto(state.node_delay_BM, self._cost(action_BM), where=taken_up_BM, casting="same_kind")
        # An idle node holds its task until another node takes that task up.
        lost_BM = nodes_B_K1.ravel()[state.node_slot_BM + self._row_B1] > 0
        state.node_slot_BM *= ~lost_BM
        np.copyto(state.node_slot_BM, action_BM, where=busy_BM, casting="same_kind")
        num_active_B, num_busy_B = active_BK.sum(1), busy_BM.sum(1)
        outcomes.full_steps_B += num_active_B == active_BK.shape[1]
        outcomes.busy_steps_B += num_busy_B
        outcomes.waiting_steps_B += num_active_B - num_busy_B
        if state.waiting_BJ.any():
            outcomes.waiting_steps_B += state.waiting_BJ.sum(1)
        outcomes.switches_B += taken_up_BM.sum(1)

    def _cost(self, action_BM: np.ndarray) -> np.ndarray | int:
        """Steps that nodes lose if they take their tasks up now, (B, M) or the same for all."""
        if self.config.migration_cost_steps == 0:
            return self.config.switch_cost_steps
        row_B1, number_M = np.arange(len(action_BM))[:, None], np.arange(1, self.config.num_nodes + 1)
        home_BM = self.state.slots.home[row_B1, action_BM - 1]  # of no meaning where the node is idle
        moved_BM = (home_BM > 0) & (home_BM != number_M)
        return self.config.switch_cost_steps + self.config.migration_cost_steps * moved_BM

    def _serve(self, action_BM: np.ndarray, flat_BM: np.ndarray) -> None:
        """Give every slot its node's service, unless the node is still switching."""
        state, slots, losses = self.state, self.state.slots, self.losses
        length = losses.ema_RL.shape[1]
        owes_BM = (state.node_delay_BM > 0) & (action_BM > 0)
        state.node_delay_BM -= owes_BM
        rate_BK = self._sum_over_nodes(flat_BM, np.where(owes_BM, 0.0, self.node_speed_M))[:, 1:]
        served_BK = rate_BK > 0
        np.copyto(slots.started, state.time, where=served_BK & (slots.started < 0))
        if self.config.migration_cost_steps > 0:
            episode, node = np.nonzero((action_BM > 0) & ~owes_BM)
            slots.home[episode, action_BM[episode, node] - 1] = node + 1
        slots.service += rate_BK
        np.copyto(slots.num_seen, np.minimum(slots.service + 1, length), where=served_BK, casting="unsafe")
        np.copyto(slots.ready, state.time, where=(slots.num_seen >= READY_POINTS) & (slots.ready < 0))
        # An empty slot (row 0, no point seen) reads the last entry; its inverse range makes that 0.
        log_loss_BK = losses.log_ema_RL.ravel()[slots.row * length + slots.num_seen - 1]
        slots.progress[:] = log_progress(
            slots.log_initial, log_loss_BK, slots.log_target, slots.inverse_range
        )

    def _leave(self, active_BK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Empty the slots of finished and of expired tasks, and free the nodes that hold them.

        Returns:
            Completed and expired tasks, int (B,) each.
        """
        state, slots, outcomes = self.state, self.state.slots, self.state.outcomes
        met_BK = slots.num_seen >= slots.points_needed
        episode, slot = np.nonzero(active_BK & (met_BK | (slots.deadline <= state.time + 1)))
        met, task = met_BK[episode, slot], slots.task[episode, slot]
        outcomes.finished_BJ[episode, task] = np.where(met, state.time, -1)
        outcomes.started_BJ[episode, task] = slots.started[episode, slot]
        outcomes.ready_BJ[episode, task] = slots.ready[episode, slot]
        outcomes.service_BJ[episode, task] = slots.service[episode, slot]
        slots.clear(episode, slot)
        place, node = np.nonzero(state.node_slot_BM[episode] == slot[:, None] + 1)
        state.node_slot_BM[episode[place], node] = 0
        num_episodes = len(active_BK)
        completed_B = np.bincount(episode[met], minlength=num_episodes)
        return completed_B, np.bincount(episode[~met], minlength=num_episodes)

    def _admit(self) -> np.ndarray:
        """Expire waiting tasks, queue the arrivals of this step, fill free slots in order of arrival.

        Returns:
            Tasks lost, int (B,): those expired while waiting and, with overflow "drop", those without a slot.
        """
        state, waiting_BJ = self.state, self.state.waiting_BJ
        lost_B = np.zeros(len(waiting_BJ), np.int64)
        if waiting_BJ.any():
            late_BJ = waiting_BJ & (self._tasks.deadline <= state.time)
            lost_B += late_BJ.sum(1)
            waiting_BJ &= ~late_BJ
        if not self.done:
            arriving = slice(*self._first_of_step[state.time : state.time + 2])
            waiting_BJ[self._arriving[0][arriving], self._arriving[1][arriving]] = True
        episode = np.flatnonzero(waiting_BJ.any(1))
        while len(episode) > 0:
            free_EK = state.slots.task[episode] < 0
            episode, free_EK = episode[free_EK.any(1)], free_EK[free_EK.any(1)]
            task = waiting_BJ[episode].argmax(1)
            state.slots.copy(episode, free_EK.argmax(1), self._tasks, task)
            waiting_BJ[episode, task] = False
            episode = episode[waiting_BJ[episode].any(1)]
        if self.config.overflow == "drop" and waiting_BJ.any():
            lost_B += waiting_BJ.sum(1)
            waiting_BJ[:] = False
        return lost_B
