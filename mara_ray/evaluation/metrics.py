"""Per-episode rows: what every table and interval is computed from.

Axis letters: B episodes, M nodes, J tasks of an episode, T steps.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mara_ray.config import SimulatorConfig
from mara_ray.evaluation.bounds import Tasks, clairvoyant_optimum, independent_feasibility
from mara_ray.evaluation.rollout import Rollout
from mara_ray.simulator.losses import TaskLosses
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import Workload

UNTRAINED = -1  # the training seed of a method that is not trained


def episode_rows(
    rollout: Rollout, *, method: str, set_name: str, load: float, root: int, training_seed: int = UNTRAINED
) -> pd.DataFrame:
    """One row per episode.

    Columns beside the names of the cell (method, set, load, root, training_seed, episode):
        tasks, completed: generated, those lost to a full queue included; finished on time.
        full_queue_fraction: share of steps in which every slot holds a task.
        waiting_tasks: mean number of tasks present, in slots or outside, that no node works on.
        readiness_delay: mean steps from arrival to the point that makes a task ready for prediction; a
            task that leaves before counts until it leaves, so that neglect does not look like speed.
        switches: times that a node took up another task than the one it held.
        migrations: times that a task was taken up by another node than the one that served it last.
        wasted_service: share of the service given to tasks that were not finished.
        utilisation: share of node-steps with a task.
        proven: True; see `bound_rows`.
    """
    workload, outcomes = rollout.workload, rollout.outcomes
    steps, _, num_nodes = rollout.node_task_TBM.shape
    real_BJ, finished_BJ = workload.real_BJ, outcomes.finished_BJ >= 0
    service_BJ = np.where(real_BJ, outcomes.service_BJ, 0.0)
    service_B = service_BJ.sum(1)
    return pd.DataFrame(
        {
            "method": method,
            "set": set_name,
            "load": load,
            "root": root,
            "training_seed": training_seed,
            "episode": np.arange(workload.num_episodes),
            "tasks": workload.num_tasks_B.astype(np.int64),
            "completed": finished_BJ.sum(1),
            "full_queue_fraction": outcomes.full_steps_B / steps,
            "waiting_tasks": outcomes.waiting_steps_B / steps,
            "readiness_delay": _readiness_delay(rollout),
            "switches": outcomes.switches_B,
            "migrations": _migrations(rollout),
            "wasted_service": (service_BJ * ~finished_BJ).sum(1) / np.maximum(service_B, 1e-9),
            "utilisation": outcomes.busy_steps_B / (steps * num_nodes),
            "proven": True,
        }
    )


def _migrations(rollout: Rollout) -> np.ndarray:
    """Times that a task came to another node than the one that served it last, int64 (B,)."""
    num_episodes, num_tasks = rollout.workload.arrival_BJ.shape
    home_BJ = np.full((num_episodes, num_tasks + 1), -1)  # the last column is that of idle nodes
    row_B1, node_M = np.arange(num_episodes)[:, None], np.arange(rollout.node_task_TBM.shape[2])
    migrations_B = np.zeros(num_episodes, np.int64)
    for task_BM in rollout.node_task_TBM:
        home_BM = home_BJ[row_B1, task_BM]
        migrations_B += ((task_BM >= 0) & (home_BM >= 0) & (home_BM != node_M)).sum(1)
        home_BJ[row_B1, task_BM] = node_M
        home_BJ[:, -1] = -1
    return migrations_B


def _readiness_delay(rollout: Rollout) -> np.ndarray:
    """Mean steps from arrival to readiness, or to departure if that comes first; float64 (B,)."""
    workload, outcomes = rollout.workload, rollout.outcomes
    last_BJ = np.minimum(workload.deadline_BJ, len(rollout.node_task_TBM)) - 1
    left_BJ = np.where(outcomes.finished_BJ >= 0, outcomes.finished_BJ, last_BJ)
    ready_BJ = np.where(outcomes.ready_BJ >= 0, outcomes.ready_BJ, left_BJ)
    delay_BJ = np.where(workload.real_BJ, ready_BJ + 1 - workload.arrival_BJ, 0)
    delay_B: np.ndarray = delay_BJ.sum(1) / np.maximum(workload.num_tasks_B, 1)
    return delay_B


def bound_rows(
    workload: Workload,
    replay: CurveReplay,
    config: SimulatorConfig,
    *,
    set_name: str,
    load: float,
    root: int,
    seconds: float,
) -> pd.DataFrame:
    """Rows of the reference levels "independent" and "clairvoyant" for the same episodes.

    Where the solver runs into its time limit (`seconds` an episode) the proven upper bound stands for the
    optimum, so that no method can pass the level, and the column `proven` is False.
    """
    node_speed_M = np.array(config.node_speeds or (1.0,) * config.num_nodes)
    needed_BJ = TaskLosses.of(config, replay, workload).points_needed_BJ
    episodes = [episode_tasks(workload, needed_BJ, episode) for episode in range(workload.num_episodes)]
    alone = [independent_feasibility(tasks, node_speed_M) for tasks in episodes]
    optima = [clairvoyant_optimum(tasks, node_speed_M, seconds) for tasks in episodes]
    levels = (
        ("independent", alone, [True] * len(alone)),
        ("clairvoyant", [optimum.upper for optimum in optima], [optimum.proven for optimum in optima]),
    )
    parts = [
        pd.DataFrame(
            {
                "method": name,
                "set": set_name,
                "load": load,
                "root": root,
                "training_seed": UNTRAINED,
                "episode": np.arange(workload.num_episodes),
                "tasks": workload.num_tasks_B.astype(np.int64),
                "completed": np.array(completed, np.int64),
                "proven": proven,
            }
        )
        for name, completed, proven in levels
    ]
    return pd.concat(parts, ignore_index=True)


def episode_tasks(workload: Workload, points_needed_BJ: np.ndarray, episode: int) -> Tasks:
    """The tasks of one episode as the clairvoyant sees them; the points are those of `TaskLosses`."""
    real_J = workload.real_BJ[episode]
    return Tasks(
        release_J=workload.arrival_BJ[episode, real_J].astype(np.int64),
        deadline_J=workload.deadline_BJ[episode, real_J].astype(np.int64),
        demand_J=points_needed_BJ[episode, real_J].astype(np.int64) - 1,
    )
