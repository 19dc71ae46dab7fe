"""The controller: observe, allocate, dispatch, take in the losses; a step after the other.

What a step brought is one record of the journal, and `_apply` is all that changes the run: a run that was
killed is taken up again by applying its records.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mara_ray.artifacts import hash_of, written_whole
from mara_ray.errors import UserError
from mara_ray.live.clock import Clock
from mara_ray.live.cluster import Request
from mara_ray.live.jobs import Jobs, Seconds
from mara_ray.live.journal import Journal
from mara_ray.live.method import LiveMethod
from mara_ray.live.node import Answer
from mara_ray.live.pool import LiveForecasts, LivePool
from mara_ray.live.states import States
from mara_ray.simulator.observe import Observation, observe

LONGEST_NAP_S = 1.0


class Nodes(Protocol):
    """What gives the points of tasks: see `cluster.RayNodes`."""

    def run(self, requests: Sequence[Request]) -> dict[int, Answer]:
        """Have all points given."""
        ...

    def drop(self, task: int) -> None:
        """Forget a task that has left."""
        ...


class View(Protocol):
    """What is told after each step: see `view`."""

    def update(self, run: Controller, observation: Observation | None, action_M: np.ndarray) -> None:
        """Show the run; the observation, None before the first step, is that from before the step."""
        ...

    def say(self, line: str) -> None:
        """Tell of something that has happened."""
        ...


class Controller:
    """One run.

    Attributes:
        jobs: what is trained.
        method: who decides.
        pool: the engine; what became of the tasks is in its state.
        clock: seconds of steps.
        arrived: (step, seconds) by task.
        failed: reasons by task.
        left: tasks that need nothing more.
        elapsed_s: since the run began, when it was away included.
        node_task_TM: for every step the task of each node, or -1.
        controller_s: seconds of each step that were not spent waiting for nodes.
    """

    def __init__(
        self, jobs: Jobs, num_nodes: int, num_slots: int, method: LiveMethod, nodes: Nodes, states: States,
        view: View, folder: Path,
    ) -> None:  # fmt: skip
        self.jobs, self.method = jobs, method
        target_J = np.array([job.target for job in jobs.jobs])
        self.pool = LivePool(num_nodes, num_slots, target_J, jobs.points)
        self.forecasts = LiveForecasts(method.predictor, self.pool)
        self.clock = Clock(jobs)
        self.arrived: dict[int, tuple[int, float]] = {}
        self.failed: dict[int, str] = {}
        self.left: set[int] = set()
        self.elapsed_s = 0.0
        self.node_task_TM: list[list[int]] = []
        self.controller_s: list[float] = []
        self._nodes, self._states, self._view, self._folder = nodes, states, view, folder
        self._next_step = 0  # at which what is opened now arrives
        self._identity = hash_of(jobs.content_hash, num_nodes, num_slots, method.name)
        method.allocator.reset(1)

    @property
    def is_over(self) -> bool:
        """Whether all tasks have left, or the last step is done."""
        over = self.jobs.steps is not None and self.pool.state.time >= self.jobs.steps
        return over or len(self.left) == len(self.jobs.jobs)

    def run(self, journal: Journal) -> None:
        """Take up what the journal holds, and go on to the end.

        Raises:
            UserError: the journal is of other jobs or settings.
            MachineError: see `cluster.RayNodes.run`.
        """
        if not journal.records:
            header: dict[str, Any] = {"run": self._identity, "began": time.time()}
            journal.append(header)
        else:
            header, *turns = journal.records
            if header.get("run") != self._identity:
                raise UserError(
                    f"--out: {journal.path.parent} holds a run of other jobs or settings; choose another"
                )
            self._view.say(f"taking up {len(turns)} steps of {journal.path}")
            for record in turns:
                self._turn(record, journal, header["began"])
        while not self.is_over:
            self._turn(None, journal, header["began"])
            self._states.write_if_due()
        self._states.write()

    def _turn(self, stored: dict[str, Any] | None, journal: Journal, began: float) -> None:
        """Do a step, or take up what is `stored` of it. The first one opens tasks and serves none."""
        started = time.perf_counter()
        observation, action_M = None, np.zeros(self.pool.config.num_nodes, np.int64)
        if self._next_step > 0:
            observation = observe(self.pool, self.forecasts)
            action_M = self.method.allocator.allocate(observation)[0]
        waited_s = 0.0
        record = stored
        if record is None:
            record = self._serve(action_M, began)
            waited_s = record["step_s"]
            journal.append(record)
        elif record["action"] != action_M.tolist():
            raise UserError(
                f"--out: step {self.pool.state.time} of {journal.path} was decided otherwise (another policy,"
                " or another predictor); choose another folder"
            )
        leaving = self._apply(record, action_M)
        for task in leaving:
            if stored is None:
                self._states.write(task)
                self._nodes.drop(task)
            self._view.say(self._farewell(task))
        self._view.update(self, observation, action_M)
        if stored is None:
            self.controller_s.append(time.perf_counter() - started - waited_s)

    def _serve(self, action_M: np.ndarray, began: float) -> dict[str, Any]:
        """Let the nodes give the next points, and open the tasks that arrive with the end of the step."""
        slot_task_K, requests = self.pool.state.slots.task[0], []
        for node, choice in enumerate(action_M.tolist()):
            if choice > 0 and self.pool.shown_J[slot_task_K[choice - 1]] < self.jobs.points:
                task = int(slot_task_K[choice - 1])
                requests.append(Request(task, node, int(self.pool.shown_J[task])))
        for task in range(len(self.jobs.jobs)):
            is_new = task not in self.arrived and task not in self.failed
            if is_new and self.clock.is_there(task, self._next_step, time.time() - began):
                requests.append(Request(task, task % len(action_M), 0))
        started = time.perf_counter()
        answers = self._nodes.run(requests)
        if not requests:
            self._nap(time.time() - began)
        step_s = time.perf_counter() - started
        losses, failed = {}, {}
        for request in requests:
            answer, name = answers[request.task], self.jobs.jobs[request.task].name
            if answer.error is None and math.isfinite(answer.loss):
                losses[str(request.task)] = answer.loss
                continue
            reason = answer.error or f"the loss of block {request.point} is {answer.loss}"
            with written_whole(self._folder / "failures" / f"{name}.txt") as temporary:
                temporary.write_text(reason)
            failed[str(request.task)] = reason.strip().splitlines()[-1]
        return {
            "action": action_M.tolist(),
            "losses": losses,
            "failed": failed,
            "elapsed_s": time.time() - began,
            "step_s": step_s,
        }

    def _nap(self, elapsed_s: float) -> None:
        """With nothing to train, wait for what arrives by the clock, but for no other's deadline to pass."""
        pause_s = self.clock.next_arrival_s(elapsed_s)
        if pause_s is not None and not self._steps_to_come():
            time.sleep(min(pause_s, LONGEST_NAP_S))

    def _steps_to_come(self) -> bool:
        """Whether a task is still to arrive at a step."""
        moments = (job.arrival for task, job in enumerate(self.jobs.jobs) if task not in self.arrived)
        return any(not isinstance(moment, Seconds) and moment > self.pool.state.time for moment in moments)

    def _apply(self, record: dict[str, Any], action_M: np.ndarray) -> list[int]:
        """Take in what a step brought, and move the engine on; the tasks that leave."""
        pool, first = self.pool, self._next_step == 0
        self.elapsed_s = record["elapsed_s"]
        losses = {int(task): loss for task, loss in record["losses"].items()}
        served = [task for task in losses if task in self.arrived]
        for task in served:
            pool.show(task, losses[task])
        for text, reason in record["failed"].items():
            self.failed[int(text)] = reason
            if int(text) in self.arrived:
                pool.give_up(int(text))
        for task in pool.present():
            if self.clock.is_late(task, self.elapsed_s, self.arrived[task][1]):
                pool.give_up(task)
        self.clock.count(record["step_s"], served)
        for task in sorted(losses.keys() - set(served)):
            self.arrived[task] = self._next_step, self.elapsed_s
            pool.arrive(task, self._next_step, self._deadline(task), losses[task])
            self._view.say(f"{self.jobs.jobs[task].name} arrived at step {self._next_step}")
        pool.episode_steps = self._last_step()
        if first:
            pool.start()
        else:
            slot_task = [-1, *pool.state.slots.task[0].tolist()]
            self.node_task_TM.append([slot_task[choice] for choice in action_M])
            pool.step(action_M[None])
        self._next_step += 1
        present = pool.present()
        for task in present:
            if isinstance(self.jobs.jobs[task].deadline, Seconds):
                pool.set_deadline(task, self._deadline(task))
        pool.episode_steps = self._last_step()
        leaving = [task for task in (*self.arrived, *self.failed) if task not in {*self.left, *present}]
        self.left.update(leaving)
        return sorted(set(leaving))

    def _deadline(self, task: int) -> int:
        return self.clock.deadline(task, self._next_step, self.elapsed_s, *self.arrived[task])

    def _last_step(self) -> int:
        """T: the last deadline, as far as deadlines can be told."""
        if self.jobs.steps is not None:
            return self.jobs.steps
        told = [
            job.arrival + job.deadline
            for job in self.jobs.jobs
            if not isinstance(job.arrival, Seconds) and not isinstance(job.deadline, Seconds)
        ]
        present = [int(self.pool.workload.deadline_BJ[0, task]) for task in self.pool.present()]
        return max([*told, *present, self.pool.state.time + 1])

    def _farewell(self, task: int) -> str:
        """What is said of a task that leaves."""
        name, finished = self.jobs.jobs[task].name, int(self.pool.state.outcomes.finished_BJ[0, task])
        if task in self.failed:
            return f"{name} failed: {self.failed[task]} (see {self._folder / 'failures' / name}.txt)"
        if finished >= 0:
            return f"{name} met its target in step {finished}"
        return f"{name} was not done by its deadline"
