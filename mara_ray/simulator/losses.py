"""The losses that tasks will show: the frozen curves, or each task's own noisy version of its curve.

Axis letters: B episodes, J tasks of an episode, R rows of losses, C curves, L points, G target levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.curves.bank import first_crossing, smooth
from mara_ray.errors import UserError
from mara_ray.seeding import generator
from mara_ray.simulator.reward import inverse_log_range
from mara_ray.simulator.state import CurveReplay, TaskTable
from mara_ray.workload.episodes import Workload


@dataclass(frozen=True, eq=False)
class TaskLosses:
    """What the tasks of a workload show when they are served.

    Attributes:
        ema_RL: float32, smoothed losses.
        log_ema_RL: float64, their logarithms.
        row_BJ: int, the row of each task; 0 for padding.
        points_needed_BJ: int32, points that must be seen until the target is met; `bank.NEVER` if never.
    """

    ema_RL: np.ndarray
    log_ema_RL: np.ndarray
    row_BJ: np.ndarray
    points_needed_BJ: np.ndarray

    @classmethod
    def of(cls, config: SimulatorConfig, replay: CurveReplay, workload: Workload) -> TaskLosses:
        """The losses that a configuration asks for; raises what `noisy` raises."""
        if config.loss_noise > 0:
            return cls.noisy(replay, workload, config.loss_noise, config.noise_seed)
        return cls.frozen(replay, workload)

    @classmethod
    def frozen(cls, replay: CurveReplay, workload: Workload) -> TaskLosses:
        """Every task replays its curve; the rows are the bank's."""
        curve_BJ = np.where(workload.real_BJ, workload.curve_BJ, 0)
        level_BJ = np.where(workload.real_BJ, workload.level_BJ, 0)
        return cls(replay.ema_CL, replay.log_ema_CL, curve_BJ, replay.points_needed_CG[curve_BJ, level_BJ])

    @classmethod
    def noisy(cls, replay: CurveReplay, workload: Workload, noise: float, seed: int) -> TaskLosses:
        """Every raw point of every task is multiplied by a factor of its own, and smoothed as ever.

        The smoothed loss at a point depends on the points up to it and on no other. Targets stay.

        Args:
            replay: curves with their raw losses.
            workload: the tasks.
            noise: standard deviation of the factors' logarithm.
            seed: root of the factors.

        Raises:
            UserError: the raw losses are not there.
        """
        raw_CL = raw_losses(replay)
        place = np.argwhere(workload.real_BJ)
        curve_R, level_R = (column[tuple(place.T)] for column in (workload.curve_BJ, workload.level_BJ))
        noisy_RL = raw_CL[curve_R].astype(np.float64)
        for row, (episode, task) in enumerate(place.tolist()):
            noisy_RL[row] *= noise_factors(workload, episode, task, raw_CL.shape[1], noise, seed)
        ema_RL = smooth(noisy_RL)
        row_BJ = np.zeros(workload.real_BJ.shape, np.int64)
        row_BJ[tuple(place.T)] = np.arange(len(place))
        needed_BJ = np.zeros(row_BJ.shape, np.int32)
        needed_BJ[tuple(place.T)] = first_crossing(ema_RL, replay.target_CG[curve_R, level_R, None])[:, 0]
        if len(ema_RL) == 0:  # no task at all; a row for the padding to point at
            ema_RL = np.ones((1, raw_CL.shape[1]), np.float32)
        return cls(ema_RL, np.log(ema_RL.astype(np.float64)), row_BJ, needed_BJ)


def raw_losses(replay: CurveReplay) -> np.ndarray:
    """The raw losses, float32 (C, L).

    Raises:
        UserError: the replay has none.
    """
    if replay.raw_CL is None:
        raise UserError("simulator.loss_noise: these curves have no raw losses to disturb; set it to 0")
    return replay.raw_CL


def noise_factors(
    workload: Workload, episode: int, task: int, length: int, noise: float, seed: int
) -> np.ndarray:
    """The factors of a task's L raw points, exp(noise x standard normal), float64 (L,).

    They descend from the seed and from what the task is, not from where its episode stands or from what
    is done: every method, and every batch that holds the episode, meets the same losses.
    """
    columns = (workload.arrival_BJ, workload.deadline_BJ, workload.curve_BJ, workload.level_BJ)
    identity = [int(column[episode, task]) for column in columns]
    return np.exp(noise * generator(seed, "loss_noise", task, *identity).standard_normal(length))


def fresh_tasks(
    workload: Workload, losses: TaskLosses, target_CG: np.ndarray, episode_steps: int
) -> TaskTable:
    """All tasks of a workload, (B, J), as they are when they enter a slot; deadlines are cut at T."""
    real_BJ = workload.real_BJ
    tasks = TaskTable(*real_BJ.shape)
    tasks.task[:] = np.arange(real_BJ.shape[1])
    tasks.curve[:] = np.where(real_BJ, workload.curve_BJ, 0)
    tasks.level[:] = np.where(real_BJ, workload.level_BJ, 0)
    tasks.row[:] = losses.row_BJ
    tasks.arrival[:] = workload.arrival_BJ
    tasks.deadline[:] = np.minimum(workload.deadline_BJ, episode_steps)
    tasks.points_needed[:] = losses.points_needed_BJ
    tasks.num_seen[:] = 1
    tasks.initial_loss[:] = losses.ema_RL[tasks.row, 0]
    tasks.target[:] = target_CG[tasks.curve, tasks.level]
    tasks.log_initial[:] = losses.log_ema_RL[tasks.row, 0]
    tasks.log_target[:] = np.log(tasks.target)
    tasks.inverse_range[:] = inverse_log_range(tasks.log_initial, tasks.log_target)
    return tasks
