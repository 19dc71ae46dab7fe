"""The simulator's own engine, with losses that come in as it goes, and forecasts made on the spot.

Axis letters: B episodes (1 here), M nodes, K slots, J tasks, L points, N samples.
"""

from __future__ import annotations

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.curves.bank import NEVER, smooth_next
from mara_ray.predictor.protocol import Predictor
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.losses import fresh_tasks
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import Workload

LONGEST_RUN = 10**6  # steps; no run gets there


class LivePool(Simulator):
    """One episode whose tasks arrive, and show their losses, when they are told to.

    Task j is on row j of the curves, which are 1 where nothing has been shown.

    Attributes:
        shown_J: int64, points shown, the untrained loss included; 0 before the arrival.
        raw_J: float64, the latest loss of each task as it came.
    """

    def __init__(self, num_nodes: int, num_slots: int, target_J: np.ndarray, num_points: int) -> None:
        num_tasks = len(target_J)
        replay = CurveReplay(
            np.ones((num_tasks, num_points), np.float32),
            target_J.astype(np.float32)[:, None],
            np.full((num_tasks, 1), NEVER, np.int32),
        )
        config = SimulatorConfig(num_nodes=num_nodes, num_slots=num_slots)
        super().__init__(config, LONGEST_RUN, replay)
        self.shown_J = np.zeros(num_tasks, np.int64)
        self.raw_J = np.full(num_tasks, np.nan)
        self._mean_J = np.zeros(num_tasks)
        blank_1J = np.full((1, num_tasks), LONGEST_RUN, np.int32)
        number_1J = np.arange(num_tasks, dtype=np.int32)[None]
        self.reset(
            Workload(blank_1J, blank_1J + 1, number_1J, 0 * number_1J, np.array([num_tasks], np.int32))
        )

    def arrive(self, task: int, step: int, deadline: int, loss: float) -> None:
        """Queue a task with its untrained loss; the step before it, or `start`, admits it."""
        self.workload.arrival_BJ[0, task] = step
        self.workload.deadline_BJ[0, task] = deadline
        self._take_in(task, loss)
        self._tasks = fresh_tasks(self.workload, self.losses, self.replay.target_CG, LONGEST_RUN)
        self.state.waiting_BJ[0, task] = True

    def start(self) -> None:
        """Admit those that are there at step 0."""
        self._admit()

    def show(self, task: int, loss: float) -> None:
        """Take in the next loss of a task, before the step that serves it."""
        self._take_in(task, loss)
        slot = self.slot_of(task)
        self.state.slots.points_needed[0, slot] = self.losses.points_needed_BJ[0, task]

    def set_deadline(self, task: int, step: int) -> None:
        """Move the deadline of a task that is here."""
        self.workload.deadline_BJ[0, task] = step
        self._tasks.deadline[0, task] = step
        here_K = self.state.slots.task[0] == task
        self.state.slots.deadline[0, here_K] = step

    def give_up(self, task: int) -> None:
        """Let a task leave with the present step, as if its deadline had come."""
        self.set_deadline(task, self.state.time)
        self.losses.points_needed_BJ[0, task] = NEVER
        self._tasks.points_needed[0, task] = NEVER
        self.state.slots.points_needed[0, self.state.slots.task[0] == task] = NEVER

    def slot_of(self, task: int) -> int:
        """The slot (0..K-1) that a task is in."""
        return int(np.flatnonzero(self.state.slots.task[0] == task)[0])

    def present(self) -> list[int]:
        """The numbers of the tasks in slots and in the queue."""
        slot_tasks_K = self.state.slots.task[0]
        return sorted([*slot_tasks_K[slot_tasks_K >= 0].tolist(), *np.flatnonzero(self.state.waiting_BJ[0])])

    def _take_in(self, task: int, loss: float) -> None:
        point, mean_1 = int(self.shown_J[task]), self._mean_J[task, None]
        # As in the bank: raw losses are float32 before they are smoothed.
        mean_1, ema_1 = smooth_next(mean_1, np.array([loss], np.float32), point)
        self._mean_J[task] = mean_1[0]
        self.losses.ema_RL[task, point] = ema_1[0]
        self.losses.log_ema_RL[task, point] = np.log(ema_1.astype(np.float32).astype(np.float64))[0]
        self.raw_J[task], self.shown_J[task] = loss, point + 1
        needed_J = self.losses.points_needed_BJ[0]
        if needed_J[task] == NEVER and self.losses.ema_RL[task, point] <= self.replay.target_CG[task, 0]:
            needed_J[task] = point + 1


class LiveForecasts:
    """Forecasts of what was seen so far, made in one batch for all tasks that have shown something new."""

    def __init__(self, predictor: Predictor, pool: LivePool) -> None:
        self._predictor, self._pool = predictor, pool
        num_tasks = len(pool.shown_J)
        self._at_J = np.zeros(num_tasks, np.int64)  # points seen by the forecast that is kept
        self.steps_JN = np.zeros((num_tasks, predictor.num_samples), np.float32)

    def lookup(self, curve: np.ndarray, num_seen: np.ndarray, level: np.ndarray) -> np.ndarray:
        """See `simulator.observe.Forecasts`; only the tasks in slots are asked for."""
        slot_tasks_K = self._pool.state.slots.task[0]
        task_X = slot_tasks_K[slot_tasks_K >= 0]
        new_X = task_X[self._at_J[task_X] != self._pool.shown_J[task_X]]
        if len(new_X):
            ema_XL = self._pool.losses.ema_RL[new_X]
            target_X1 = self._pool.replay.target_CG[new_X]
            self.steps_JN[new_X] = self._predictor.predict(ema_XL, self._pool.shown_J[new_X], target_X1)[:, 0]
            self._at_J[new_X] = self._pool.shown_J[new_X]
        return self.steps_JN[curve]
