"""Wall-clock arrivals and deadlines, in steps, by the seconds that a step of each task has taken so far."""

from __future__ import annotations

from collections.abc import Iterable

from mara_ray.live.jobs import Jobs, Seconds

UNKNOWN_STEP_S = 1.0  # seconds of a step before any has been measured


class Clock:
    """Tells when tasks arrive and until when they have, in steps of the run.

    A step lasts as long as the slowest block in it, so what a task's step takes is the mean over the steps
    that served it; before its first, the mean over all steps.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._spent_s, self._steps = [0.0] * len(jobs.jobs), [0] * len(jobs.jobs)
        self._all_s, self._all_steps = 0.0, 0

    def count(self, seconds: float, tasks: Iterable[int]) -> None:
        """Take in a step that served these tasks."""
        served = list(tasks)
        for task in served:
            self._spent_s[task] += seconds
            self._steps[task] += 1
        if served:
            self._all_s += seconds
            self._all_steps += 1

    def step_s(self, task: int) -> float:
        """Seconds of a step of this task."""
        if self._steps[task]:
            return self._spent_s[task] / self._steps[task]
        return self.mean_step_s

    @property
    def mean_step_s(self) -> float:
        """Seconds of a step that serves a task."""
        return self._all_s / self._all_steps if self._all_steps else UNKNOWN_STEP_S

    def is_there(self, task: int, step: int, elapsed_s: float) -> bool:
        """Whether a task has arrived."""
        arrival = self._jobs.jobs[task].arrival
        return arrival <= (elapsed_s if isinstance(arrival, Seconds) else step)

    def is_late(self, task: int, elapsed_s: float, arrived_s: float) -> bool:
        """Whether a wall-clock deadline is over; deadlines in steps are the engine's."""
        deadline = self._jobs.jobs[task].deadline
        return isinstance(deadline, Seconds) and elapsed_s - arrived_s > deadline

    def deadline(self, task: int, step: int, elapsed_s: float, arrived_step: int, arrived_s: float) -> int:
        """The deadline as a step of the run: steps before it count; at least the next one counts."""
        deadline = self._jobs.jobs[task].deadline
        if not isinstance(deadline, Seconds):
            last = arrived_step + deadline
        else:
            left_s = arrived_s + deadline - elapsed_s
            last = step + max(1, int(left_s / self.step_s(task)))
        return min(last, self._jobs.steps) if self._jobs.steps else last

    def next_arrival_s(self, elapsed_s: float) -> float | None:
        """Seconds until the next arrival by the clock; None if there is none."""
        moments = [job.arrival - elapsed_s for job in self._jobs.jobs if isinstance(job.arrival, Seconds)]
        return min((moment for moment in moments if moment > 0), default=None)
