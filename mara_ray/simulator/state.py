"""The simulator's data: frozen curves to replay, and the struct of arrays that a step moves on.

Axis letters: B episodes, M nodes, K slots, J tasks of an episode, C curves, R rows of losses,
L points, G target levels.
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
        raw_CL: float32, the losses before smoothing; only run-time noise needs them.
    """

    ema_CL: np.ndarray
    target_CG: np.ndarray
    points_needed_CG: np.ndarray
    raw_CL: np.ndarray | None = None

    @classmethod
    def from_bank(cls, bank: CurveBank, fractions: tuple[float, ...]) -> CurveReplay:
        """Replay a bank's curves with targets at `fractions` of each curve's log-drop."""
        target_CG = bank.target_losses(fractions)
        return cls(bank.ema_CL, target_CG, first_crossing(bank.ema_CL, target_CG), bank.raw_CL)

    @cached_property
    def log_ema_CL(self) -> np.ndarray:
        """float64 (C, L)."""
        return np.log(self.ema_CL.astype(np.float64))


class TaskTable:
    """Tasks in a grid of places: the K slots of B episodes, or all J tasks of each as they arrive.

    Each column is a view of one block of integers or of reals, so that a task moves with two copies.
    In an empty slot `task`, `started` and `ready` are -1 and the rest is 0.
    """

    # int32 (episodes, places)
    task: np.ndarray  # number of the task in its episode
    curve: np.ndarray
    level: np.ndarray
    row: np.ndarray  # of the losses that the task shows
    arrival: np.ndarray
    deadline: np.ndarray  # cut at T
    points_needed: np.ndarray  # points that must be seen until the target is met; NEVER if it is not
    num_seen: np.ndarray  # points seen: 1 + whole points of service, at most L
    home: np.ndarray  # m + 1 of the node m that served it last, 0 none; kept only where moving costs steps
    started: np.ndarray  # step of the first service; -1 not yet
    ready: np.ndarray  # step in which point READY_POINTS was seen; -1 not yet
    # float64 (episodes, places)
    service: np.ndarray  # points of service received
    progress: np.ndarray  # q
    initial_loss: np.ndarray
    target: np.ndarray
    log_initial: np.ndarray
    log_target: np.ndarray
    inverse_range: np.ndarray  # 1 / log(L0 / target)

    def __init__(self, num_episodes: int, num_places: int):
        """A table of empty places."""
        names = list(TaskTable.__annotations__)
        num_integers = names.index("service")
        self._integers = np.zeros((num_integers, num_episodes, num_places), np.int32)
        self._reals = np.zeros((len(names) - num_integers, num_episodes, num_places))
        for name, column in zip(names, [*self._integers, *self._reals], strict=True):
            setattr(self, name, column)
        self.task[:] = self.started[:] = self.ready[:] = -1

    def clear(self, episode: np.ndarray, place: np.ndarray) -> None:
        """Empty these places, int (places,) each."""
        self._integers[:, episode, place] = 0
        self._reals[:, episode, place] = 0
        for column in (self.task, self.started, self.ready):
            column[episode, place] = -1

    def copy(self, episode: np.ndarray, place: np.ndarray, source: TaskTable, task: np.ndarray) -> None:
        """Copy tasks of the same episodes from another table, int (places,) each."""
        self._integers[:, episode, place] = source._integers[:, episode, task]
        self._reals[:, episode, place] = source._reals[:, episode, task]


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
        finished_BJ, started_BJ, ready_BJ = np.full((3, num_episodes, num_tasks), -1, np.int32)
        full_B, waiting_B, busy_B, switches_B = np.zeros((4, num_episodes), np.int64)
        service_BJ = np.zeros((num_episodes, num_tasks))
        return cls(finished_BJ, started_BJ, ready_BJ, service_BJ, full_B, waiting_B, busy_B, switches_B)


@dataclass(eq=False)
class SimulatorState:
    """B episodes in step with one another."""

    time: int  # the current step t
    slots: TaskTable  # of B x K places
    waiting_BJ: np.ndarray  # bool, the task is in the outer queue
    node_slot_BM: np.ndarray  # int32, slot (1..K) whose task the node holds; 0 none
    node_delay_BM: np.ndarray  # int32, steps of switching the node still owes
    outcomes: Outcomes

    @classmethod
    def start(cls, num_episodes: int, num_nodes: int, num_slots: int, num_tasks: int) -> SimulatorState:
        """Step 0, before any arrival."""
        return cls(
            time=0,
            slots=TaskTable(num_episodes, num_slots),
            waiting_BJ=np.zeros((num_episodes, num_tasks), bool),
            node_slot_BM=np.zeros((num_episodes, num_nodes), np.int32),
            node_delay_BM=np.zeros((num_episodes, num_nodes), np.int32),
            outcomes=Outcomes.blank(num_episodes, num_tasks),
        )
