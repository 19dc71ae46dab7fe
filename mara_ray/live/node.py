"""What runs on a node: tasks held in memory, the point that is asked for, and the state after it."""

from __future__ import annotations

import pickle
import time
import traceback
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from mara_ray.learning_task import LearningTask, has_state
from mara_ray.live.entries import make_entry
from mara_ray.live.jobs import Job

MOST_RESIDENT = 4  # tasks kept in memory beside those that cannot be moved


@dataclass(frozen=True)
class Answer:
    """What came of one point.

    Attributes:
        loss: the loss of the point; nan if there is none.
        state: the task's state after it, pickled, uint8; None for a task that cannot be moved.
        error: the traceback, if the task raised.
        absent: the task is not held here, and its state was not sent.
        block_s, take_up_s, put_down_s: seconds of the block, of building and loading before it, and of
            saving after it.
    """

    loss: float = float("nan")
    state: np.ndarray | None = None
    error: str | None = None
    absent: bool = False
    block_s: float = 0.0
    take_up_s: float = 0.0
    put_down_s: float = 0.0


@dataclass
class _Resident:
    """A task in memory, and the points it has shown."""

    task: LearningTask
    shown: int


class Node:
    """Runs blocks of tasks. All that it holds can be had again from a task's job and its last state.

    Point 0 is the untrained loss; point n the loss of block n. To give point n, a task that is not here with
    n points shown is taken up from the state, or from its start, and trained up to there; what those blocks
    lose again is not looked at.
    """

    def __init__(self) -> None:
        self._residents: OrderedDict[int, _Resident] = OrderedDict()

    def ping(self) -> bool:
        """Answer, as soon as the node is there."""
        return True

    def point(self, task: int, job: Job, point: int, state: np.ndarray | None, state_points: int) -> Answer:
        """Give one point of a task.

        Args:
            task: its number.
            job: how it is made.
            point: which one.
            state: the pickled state to go on from; None if there is none, or if it should not be needed.
            state_points: points shown in the task's latest state; 0 if it has none.
        """
        if state is None and state_points > 0 and not self._holds(task, point):
            return Answer(absent=True)
        try:
            return self._point(task, job, point, state, state_points)
        except BaseException:  # SystemExit as well: a task may end itself, not the node
            self._residents.pop(task, None)
            return Answer(error=traceback.format_exc())

    def _holds(self, task: int, point: int) -> bool:
        return task in self._residents and self._residents[task].shown == point

    def _point(self, task: int, job: Job, point: int, state: np.ndarray | None, state_points: int) -> Answer:
        started = time.perf_counter()
        resident = self._take_up(task, job, point, state, state_points)
        taken_up = time.perf_counter()
        loss = _next_point(resident)
        done = time.perf_counter()
        after = None
        if has_state(resident.task):
            after = np.frombuffer(pickle.dumps(resident.task.state_dict(), protocol=5), np.uint8)
        saved = time.perf_counter()
        return Answer(
            loss, after, block_s=done - taken_up, take_up_s=taken_up - started, put_down_s=saved - done
        )

    def _take_up(
        self, task: int, job: Job, point: int, state: np.ndarray | None, state_points: int
    ) -> _Resident:
        resident = self._residents.get(task)
        if resident is None or not self._holds(task, point):
            # A copy that was left behind can take the state; one without a state starts anew.
            if resident is None or state is None:
                resident = _Resident(make_entry(job.entry, job.arguments), 0)
            if state is not None:
                resident.task.load_state_dict(pickle.loads(state.data))
                resident.shown = state_points
            while resident.shown < point:
                _next_point(resident)
        self._residents[task] = resident
        self._residents.move_to_end(task)
        movable = [number for number, other in self._residents.items() if has_state(other.task)]
        for number in movable[:-MOST_RESIDENT]:
            del self._residents[number]
        return resident

    def drop(self, task: int) -> None:
        """Forget a task that has left."""
        self._residents.pop(task, None)


def _next_point(resident: _Resident) -> float:
    """The next point of a task."""
    initial = resident.task.initial_loss if resident.shown == 0 else None
    loss = float(resident.task.run_block() if initial is None else initial)
    resident.shown += 1
    return loss
