"""What became of a live run: outcome.json, which knows no clock, timings.json, which does, and the chart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mara_ray.artifacts import write_json, written_whole
from mara_ray.live.controller import Controller
from mara_ray.live.jobs import Seconds
from mara_ray.workload.episodes import padded


def outcome_of(run: Controller) -> dict[str, Any]:
    """What became of each job; the same every time if deadlines are in steps and trainings repeatable."""
    outcomes = run.pool.state.outcomes
    jobs = []
    for task, job in enumerate(run.jobs.jobs):
        finished = int(outcomes.finished_BJ[0, task])
        has_arrived = task in run.arrived
        status = "met" if finished >= 0 else "failed" if task in run.failed else "missed"
        shown = int(run.pool.shown_J[task])
        jobs.append(
            {
                "name": job.name,
                "status": status if has_arrived or task in run.failed else "never arrived",
                "reason": run.failed.get(task),
                "arrival": run.arrived[task][0] if has_arrived else None,
                "deadline": _deadline(run, task) if has_arrived else None,
                "finished": finished if finished >= 0 else None,
                "blocks": max(0, shown - 1),
                "target": job.target,
                "loss": float(run.pool.losses.ema_RL[task, shown - 1]) if shown else None,
            }
        )
    return {
        "allocator": run.method.name,
        "nodes": run.pool.config.num_nodes,
        "met": sum(job["status"] == "met" for job in jobs),
        "of": len(jobs),
        "jobs": jobs,
    }


def _deadline(run: Controller, task: int) -> int | str:
    """The deadline as a step; as it was given, if it is by the clock."""
    deadline = run.jobs.jobs[task].deadline
    if isinstance(deadline, Seconds):
        return f"{deadline:g}s"
    return int(run.pool.workload.deadline_BJ[0, task])


def write_outcome(run: Controller, folder: Path, num_lost: int, num_moves: int) -> dict[str, Any]:
    """Write outcome.json and timings.json; the outcome."""
    outcome = outcome_of(run)
    write_json(folder / "outcome.json", outcome)
    names = [job.name for job in run.jobs.jobs]
    timings = {
        "elapsed_s": run.elapsed_s,
        "steps": run.pool.state.time,
        "mean_step_s": run.clock.mean_step_s,
        "step_s": {name: run.clock.step_s(task) for task, name in enumerate(names)},
        "controller_ms": 1000 * float(np.median(run.controller_s or [0.0])),
        "workers_lost": num_lost,
        "moves": num_moves,
    }
    write_json(folder / "timings.json", timings)
    return outcome


def write_chart(run: Controller, path: Path) -> None:
    """Draw which node worked on what, in a PNG; jobs in the order in which they came."""
    from mara_ray.evaluation.gantt import gantt
    from mara_ray.evaluation.rollout import Rollout

    outcomes, end = run.pool.state.outcomes, run.pool.state.time
    order_J = np.array(sorted(run.arrived, key=lambda task: (run.arrived[task][0], task)), np.int64)
    arrival_J = run.pool.workload.arrival_BJ[0, order_J]
    # A deadline by the clock may lie far behind the end of the run.
    deadline_J = np.clip(run.pool.workload.deadline_BJ[0, order_J], arrival_J + 1, max(end, 1))
    zero_J = 0 * arrival_J
    workload = padded([np.stack([arrival_J, np.maximum(deadline_J, arrival_J + 1), zero_J, zero_J])])
    place = {int(task): number for number, task in enumerate(order_J)} | {-1: -1}
    node_task_TM = [[place[task] for task in node_task_M] for node_task_M in run.node_task_TM]
    drawn = replace(outcomes, finished_BJ=outcomes.finished_BJ[:, order_J])
    rollout = Rollout(workload, drawn, np.array(node_task_TM, np.int16)[:, None])
    picture = gantt({run.method.name: rollout}, 0, "live")
    with written_whole(path) as temporary:
        temporary.write_bytes(picture.png)
