"""Workloads: which task arrives when, on which curve, with what target and deadline.

Axis letters: B episodes, J tasks of an episode, C curves, G target levels, T steps.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from mara_ray.artifacts import written_whole
from mara_ray.config import WorkloadConfig
from mara_ray.errors import UserError
from mara_ray.seeding import generator

PADDING = -1


@dataclass(frozen=True, eq=False)
class Workload:
    """The tasks of B episodes, in order of arrival; entries past an episode's last task are -1.

    Attributes:
        arrival_BJ: int32, the step at which the task appears (nondecreasing along J).
        deadline_BJ: int32, steps `deadline - 1` and before count; over the arrival.
        curve_BJ: int32, row of the curve in its bank.
        level_BJ: int32, index of the target among the bank's target levels.
        num_tasks_B: int32.

    Raises:
        UserError: shapes that differ, unsorted arrivals, or a deadline that is not after the arrival.
    """

    arrival_BJ: np.ndarray
    deadline_BJ: np.ndarray
    curve_BJ: np.ndarray
    level_BJ: np.ndarray
    num_tasks_B: np.ndarray

    def __post_init__(self) -> None:
        shape = self.arrival_BJ.shape
        for field in fields(self):
            array = getattr(self, field.name)
            expected = shape[:1] if field.name == "num_tasks_B" else shape
            if len(shape) != 2 or array.shape != expected or array.dtype != np.int32:
                found = f"{array.dtype} {array.shape}"
                raise UserError(f"{field.name}: {found} is not int32 {expected}; draw the workload again")
        if ((self.num_tasks_B < 0) | (self.num_tasks_B > shape[1])).any():
            raise UserError(f"num_tasks_B: a count is not in 0..{shape[1]}; draw the workload again")
        self._refuse("arrival_BJ", self.arrival_BJ < 0, "is before step 0")
        self._refuse("deadline_BJ", self.deadline_BJ <= self.arrival_BJ, "is not after the arrival")
        self._refuse("curve_BJ", self.curve_BJ < 0, "is no curve")
        self._refuse("level_BJ", self.level_BJ < 0, "is no target level")
        earlier_BJ = np.diff(self.arrival_BJ, axis=1, prepend=0) < 0
        self._refuse("arrival_BJ", earlier_BJ, "is before the task in front of it; sort by arrival")

    @property
    def num_episodes(self) -> int:
        """Episodes B."""
        return int(self.arrival_BJ.shape[0])

    @property
    def real_BJ(self) -> np.ndarray:
        """Booleans (B, J), False where there is only padding."""
        return np.arange(self.arrival_BJ.shape[1]) < self.num_tasks_B[:, None]

    @cached_property
    def content_hash(self) -> str:
        """A 16-digit hash of all tasks."""
        digest = hashlib.sha256(repr(self.arrival_BJ.shape).encode())
        for field in fields(self):
            digest.update(np.ascontiguousarray(getattr(self, field.name)).tobytes())
        return digest.hexdigest()[:16]

    def take(self, episodes: np.ndarray | slice) -> Workload:
        """The workload of some of the episodes."""
        return Workload(**{field.name: getattr(self, field.name)[episodes] for field in fields(self)})

    def check_bank(self, num_curves: int, num_levels: int) -> None:
        """Check that every curve and target level exists.

        Raises:
            UserError: a task is on a curve or level that the bank does not have.
        """
        self._refuse("curve_BJ", self.curve_BJ >= num_curves, f"is not among the {num_curves} of the bank")
        self._refuse("level_BJ", self.level_BJ >= num_levels, f"is not among the {num_levels} of the bank")

    def save(self, path: Path) -> None:
        """Write all arrays to an .npz file, whole or not at all; the same tasks give the same bytes."""
        with written_whole(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Workload:
        """Read a workload back.

        Raises:
            UserError: the file is missing, damaged, or holds an impossible workload.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls(**{field.name: arrays[field.name] for field in fields(cls)})
        except FileNotFoundError as error:
            raise UserError(f"workload: {path} is missing; run the stage that draws it") from error
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError) as error:
            raise UserError(f"workload: {path} is damaged ({error}); delete it and run again") from error

    def _refuse(self, name: str, bad_BJ: np.ndarray, why: str) -> None:
        places = np.argwhere(bad_BJ & self.real_BJ)
        if len(places):
            episode, task = (int(place) for place in places[0])
            value = int(getattr(self, name)[episode, task])
            raise UserError(f"{name}: {value} of task {task} in episode {episode} {why}; mend the workload")


def draw_workload(
    config: WorkloadConfig, rows: np.ndarray, load: float, num_episodes: int, seed: int, *path: str | int
) -> Workload:
    """Draw episodes: Bernoulli arrivals, uniform curves and targets, windows independent of the demand.

    In every step t of 0..T-1 a task arrives with probability `load`. Its curve is uniform over `rows`,
    its target over the levels, and its deadline is t + U(1 - spread, 1 + spread) D0: cut at T, or with
    `beyond_end` "leave_out" the task never comes if that is after T. `initial_tasks` more tasks are there
    at step 0. Episode e descends from (seed, *path, e), so it does not depend on how many episodes are drawn.

    Args:
        config: T, D0, spread, target levels, initial tasks, and what becomes of deadlines after T.
        rows: bank rows that tasks are drawn from, int (C,).
        load: arrival probability p per step.
        num_episodes: episodes B.
        seed: the run's seed.
        path: names of the stream below the seed.

    Raises:
        UserError: there is no curve to draw from.
    """
    if len(rows) == 0:
        raise UserError("workload: no accepted curve in this set and split; generate more curves")
    episodes = [
        _draw_episode(config, rows, load, generator(seed, *path, episode)) for episode in range(num_episodes)
    ]
    return padded(episodes)


def padded(episodes: list[np.ndarray]) -> Workload:
    """A workload of episodes given as arrivals, deadlines, curves and levels, int32 (4, tasks) each."""
    num_tasks_B = np.array([episode.shape[1] for episode in episodes], np.int32)
    padded_4BJ = np.full((4, len(episodes), max(1, int(num_tasks_B.max(initial=0)))), PADDING, np.int32)
    for number, episode in enumerate(episodes):
        padded_4BJ[:, number, : episode.shape[1]] = episode
    arrival_BJ, deadline_BJ, curve_BJ, level_BJ = padded_4BJ
    return Workload(arrival_BJ, deadline_BJ, curve_BJ, level_BJ, num_tasks_B)


def _draw_episode(
    config: WorkloadConfig, rows: np.ndarray, load: float, rng: np.random.Generator
) -> np.ndarray:
    """Arrivals, deadlines, curves and levels of one episode, int32 (4, tasks)."""
    arriving_J = np.flatnonzero(rng.random(config.episode_steps) < load)
    arrival_J = np.concatenate([np.zeros(config.initial_tasks, np.int64), arriving_J])
    num_tasks = len(arrival_J)
    curve_J = rows[rng.integers(len(rows), size=num_tasks)]
    level_J = rng.integers(len(config.target_fractions), size=num_tasks)
    spread = config.window_spread
    window_J = np.rint(rng.uniform(1 - spread, 1 + spread, num_tasks) * config.window_steps)
    deadline_J = arrival_J + np.maximum(window_J, 1)
    task_4J = np.stack([arrival_J, np.minimum(deadline_J, config.episode_steps), curve_J, level_J])
    if config.beyond_end == "leave_out":
        task_4J = task_4J[:, deadline_J <= config.episode_steps]
    return task_4J.astype(np.int32)
