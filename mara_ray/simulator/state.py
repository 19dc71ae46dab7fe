"""The simulator's data: frozen curves to replay, and the struct of arrays that a step moves on.

Axis letters: B episodes, M nodes, K slots, J tasks of an episode, C curves, L points, G target levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mara_ray.curves.bank import CurveBank, first_crossing

READY_POINTS = 4  # points that a task must have shown before its forecast is more than the remaining cap


@dataclass(frozen=True, eq=False)
class CurveReplay:
    """Frozen curves, their targets, and when each target is met.

    Attributes:
        ema_CL: float32, smoothed losses.
        target_CG: float32, target losses.
        points_needed_CG: int32, points n that must be seen until the target is met; `bank.NEVER` if never.
    """

    ema_CL: np.ndarray
    target_CG: np.ndarray
    points_needed_CG: np.ndarray

    @classmethod
    def from_bank(cls, bank: CurveBank, fractions: tuple[float, ...]) -> CurveReplay:
        """Replay a bank's curves with targets at `fractions` of each curve's log-drop."""
        target_CG = bank.target_losses(fractions)
        return cls(bank.ema_CL, target_CG, first_crossing(bank.ema_CL, target_CG))

    @cached_property
    def log_ema_CL(self) -> np.ndarray:
        """float64 (C, L)."""
        return np.log(self.ema_CL.astype(np.float64))

    @cached_property
    def log_target_CG(self) -> np.ndarray:
        """float64 (C, G)."""
        return np.log(self.target_CG.astype(np.float64))


@dataclass(eq=False)
class SlotTasks:
    """The tasks in the K slots of B episodes. In an empty slot the task is -1 and the rest 0."""

    task: np.ndarray  # (B, K) int32, number of the task in its episode
    curve: np.ndarray  # (B, K) int32
    level: np.ndarray  # (B, K) int32
    arrival: np.ndarray  # (B, K) int32
    deadline: np.ndarray  # (B, K) int32, cut at T
    points_needed: np.ndarray  # (B, K) int32
    num_seen: np.ndarray  # (B, K) int32, points seen: 1 + whole points of service, at most L
    service: np.ndarray  # (B, K) float64, points of service received
    progress: np.ndarray  # (B, K) float64, q
    log_initial: np.ndarray  # (B, K) float64
    log_target: np.ndarray  # (B, K) float64
    inverse_range: np.ndarray  # (B, K) float64, 1 / log(L0 / target)
    initial_loss: np.ndarray  # (B, K) float32
    target: np.ndarray  # (B, K) float32

    @classmethod
    def empty(cls, num_episodes: int, num_slots: int) -> SlotTasks:
        """Slots without tasks."""
        shape = (num_episodes, num_slots)
        integers = [np.zeros(shape, np.int32) for _ in range(6)]
        doubles = [np.zeros(shape) for _ in range(5)]
        singles = [np.zeros(shape, np.float32) for _ in range(2)]
        return cls(np.full(shape, -1, np.int32), *integers, *doubles, *singles)

    def clear(self, episode: np.ndarray, slot: np.ndarray) -> None:
        """Empty the slots at these places, int (places,) each."""
        for array in vars(self).values():
            array[episode, slot] = 0
        self.task[episode, slot] = -1


@dataclass(eq=False)
class Outcomes:
    """What became of the tasks and of the nodes' time: the record that metrics are made from.

    A task's row is complete once the task has left; at the end of an episode that is every task.
    """

    finished_BJ: np.ndarray  # int32, step in which the target was met; -1 never
    started_BJ: np.ndarray  # int32, step of the first service; -1 never
    ready_BJ: np.ndarray  # int32, step in which point READY_POINTS was seen; -1 never
    service_BJ: np.ndarray  # float64, points of service received
    full_steps_B: np.ndarray  # int64, steps with a task in every slot
    waiting_steps_B: np.ndarray  # int64, sum over steps of tasks present (slots and queue) but on no node
    busy_steps_B: np.ndarray  # int64, node-steps with a task, switching included
    switches_B: np.ndarray  # int64, times that a node took up a task other than the one it held

    @classmethod
    def blank(cls, num_episodes: int, num_tasks: int) -> Outcomes:
        """Outcomes before the first step."""
        steps = [np.full((num_episodes, num_tasks), -1, np.int32) for _ in range(3)]
        counters = [np.zeros(num_episodes, np.int64) for _ in range(4)]
        return cls(*steps, np.zeros((num_episodes, num_tasks)), *counters)


@dataclass(eq=False)
class SimulatorState:
    """B episodes in step with one another."""

    time: int  # the current step t
    slots: SlotTasks
    waiting_BJ: np.ndarray  # bool, the task is in the outer queue
    node_slot_BM: np.ndarray  # int32, slot (1..K) whose task the node holds; 0 none
    node_delay_BM: np.ndarray  # int32, steps of switching the node still owes
    outcomes: Outcomes

    @classmethod
    def start(cls, num_episodes: int, num_nodes: int, num_slots: int, num_tasks: int) -> SimulatorState:
        """Step 0, before any arrival."""
        return cls(
            time=0,
            slots=SlotTasks.empty(num_episodes, num_slots),
            waiting_BJ=np.zeros((num_episodes, num_tasks), bool),
            node_slot_BM=np.zeros((num_episodes, num_nodes), np.int32),
            node_delay_BM=np.zeros((num_episodes, num_nodes), np.int32),
            outcomes=Outcomes.blank(num_episodes, num_tasks),
        )
