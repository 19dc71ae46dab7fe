"""A live run from its jobs to its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from rich.console import Console

from mara_ray.config import ClusterConfig
from mara_ray.experiments.cluster import connect
from mara_ray.experiments.locks import locked
from mara_ray.live.cluster import RayNodes
from mara_ray.live.controller import Controller
from mara_ray.live.jobs import Jobs
from mara_ray.live.journal import Journal
from mara_ray.live.method import LiveMethod
from mara_ray.live.outcome import write_chart, write_outcome
from mara_ray.live.states import States
from mara_ray.live.view import view_of
from mara_ray.progress import say


@dataclass(frozen=True)
class Place:
    """Where a run happens.

    Attributes:
        num_nodes, num_slots: M and K.
        cpus_per_node: of Ray; None is an even share of what there is, at most one.
        gpus_per_node: of Ray.
    """

    num_nodes: int
    num_slots: int
    cpus_per_node: float | None = None
    gpus_per_node: float = 0.0


def run_jobs(
    jobs: Jobs, method: LiveMethod, cluster: ClusterConfig, place: Place, folder: Path, chart: bool
) -> dict[str, Any]:
    """Schedule all jobs to their end, or take up the run that is in the folder.

    Writes `outcome.json`, `timings.json`, `states/` with the last state of each job, `failures/` with
    tracebacks, `journal.jsonl`, and `gantt.png` if a chart is asked for.

    Returns:
        The content of outcome.json.

    Raises:
        UserError: the folder holds another run, or is in use, or Ray has less than the nodes ask for.
        MachineError: Ray cannot be had, has no room, or the disk is full.
    """
    with (
        locked(folder / ".lock"),
        Journal(folder / "journal.jsonl") as journal,
        view_of(Console(stderr=True)) as view,
    ):
        states = States(folder / "states", [job.name for job in jobs.jobs])
        view.say("starting Ray and the nodes")
        connect(cluster)
        cpus = place.cpus_per_node
        if cpus is None:
            cpus = min(1.0, int(100 * ray.cluster_resources().get("CPU", 1) / place.num_nodes) / 100)
        nodes = RayNodes(place.num_nodes, jobs, states, cpus, place.gpus_per_node, view.say)
        try:
            run = Controller(jobs, place.num_nodes, place.num_slots, method, nodes, states, view, folder)
            run.run(journal)
        finally:
            nodes.close()
    outcome = write_outcome(run, folder, nodes.num_lost, nodes.num_moves)
    if chart and run.node_task_TM:
        write_chart(run, folder / "gantt.png")
    elif chart:
        say("gantt.png: not drawn, for no node worked a step")
    return outcome
