"""What live scheduling costs: seconds to pause, resume and move a job by its state, and the controller's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mara_ray.learning_task import LearningTask
from mara_ray.live.cluster import RayNodes, Request
from mara_ray.live.controller import Controller
from mara_ray.live.jobs import Job, Jobs
from mara_ray.live.journal import Journal
from mara_ray.live.method import LiveMethod
from mara_ray.live.node import Answer
from mara_ray.live.states import States
from mara_ray.progress import Report
from mara_ray.simulator.observe import Observation

STATE_BYTES = {"10 kB": 10_000, "1 MB": 1_000_000, "100 MB": 100_000_000}
ROUNDS = 5
STEPS = 150  # of the controller's run; forecasts of longer prefixes cost more
SPEED = 0.01


class Weight(LearningTask):
    """A task whose blocks take no time, with a state of a given size."""

    initial_loss = 1.0

    def __init__(self, num_bytes: int = 0) -> None:
        self.blocks, self.weight = 0, np.zeros(num_bytes, np.uint8)

    def run_block(self) -> float:
        """A loss that falls."""
        self.blocks += 1
        return 1 / (1 + SPEED * self.blocks)

    def state_dict(self) -> dict[str, Any]:
        """All of it, as a copy."""
        return {"blocks": self.blocks, "weight": self.weight.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.blocks, self.weight = state["blocks"], state["weight"].copy()


class FastNodes:
    """Nodes on which a block takes no time: what is left is the controller."""

    def __init__(self) -> None:
        self._task = Weight()

    def run(self, requests: Sequence[Request]) -> dict[int, Answer]:
        """Losses that fall, each task's at a pace of its own."""
        return {
            request.task: Answer(1 / (1 + SPEED * (1 + request.task % 7) * request.point))
            for request in requests
        }

    def drop(self, task: int) -> None:
        """Nothing is held."""


class SilentView:
    """Shows nothing."""

    def update(self, run: Controller, observation: Observation | None, action_M: np.ndarray) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


def switching_seconds(folder: Path, report: Report) -> dict[str, dict[str, float]]:
    """Median seconds on two real workers, by the size of the state; Ray must be initialised.

    Returns:
        By size: `stay_s`, a block on the node that holds the job (its state comes back after it);
        `resume_s`, one after four others have pushed the job out of the node's memory; `move_s`, one on the
        other node; `pause_s`, taking the state and bringing it into the object store, a part of all three.
    """
    measured = {}
    for number, (size, num_bytes) in enumerate(STATE_BYTES.items()):
        entry, arguments = f"{__name__}:Weight", {"num_bytes": num_bytes}
        jobs = Jobs(
            jobs=tuple(
                Job(name=f"w{n}", entry=entry, arguments=arguments, target=1e-3, deadline=1) for n in range(6)
            )
        )
        states = States(folder / f"states-{num_bytes}", [job.name for job in jobs.jobs])
        cpus = 0.5
        nodes = RayNodes(2, jobs, states, cpus, 0.0, lambda line: None)
        points = dict.fromkeys(range(6), 0)

        def block(task: int, node: int, nodes: RayNodes = nodes, points: dict[int, int] = points) -> Answer:
            answer = nodes.run([Request(task, node, points[task])])[task]
            points[task] += 1
            return answer

        seconds: dict[str, list[float]] = {"pause_s": [], "stay_s": [], "resume_s": [], "move_s": []}
        for task in points:
            block(task, 0)
        for round_ in range(ROUNDS):
            report(ROUNDS * number + round_, ROUNDS * len(STATE_BYTES), size)
            for task in (1, 2, 3, 4):  # four others: task 0 is pushed out of the memory of node 0
                block(task, 0)
            for name, node in (("resume_s", 0), ("stay_s", 0), ("move_s", 1)):
                started = time.perf_counter()
                answer = block(0, node)
                seconds[name].append(time.perf_counter() - started)
                if name == "stay_s":
                    seconds["pause_s"].append(answer.put_down_s)
        measured[size] = {name: float(np.median(values)) for name, values in seconds.items()}
        nodes.close()
    return measured


def controller_milliseconds(method: LiveMethod, num_nodes: int, folder: Path) -> dict[str, float]:
    """What a step costs the controller, journal included, with nodes on which blocks take no time.

    Returns:
        `median_ms` and `p95_ms` of steps, `tasks`: active ones in the median step, and `budget_ms`: 5, and
        1 for each of them.
    """
    num_slots = 2 * num_nodes
    entry = f"{__name__}:Weight"
    jobs = Jobs(
        jobs=tuple(
            Job(name=f"w{n}", entry=entry, target=0.3, deadline=STEPS, arrival=0) for n in range(num_slots)
        ),
        steps=STEPS,
    )
    active: list[int] = []

    class Counting(SilentView):
        def update(self, run: Controller, observation: Observation | None, action_M: np.ndarray) -> None:
            if observation is not None:
                active.append(int(observation.active_BK.sum()))

    states = States(folder / "states", [job.name for job in jobs.jobs])
    run = Controller(jobs, num_nodes, num_slots, method, FastNodes(), states, Counting(), folder)
    with Journal(folder / "journal.jsonl") as journal:
        run.run(journal)
    tasks = float(np.median(active))
    milliseconds = 1000 * np.array(run.controller_s[1:])
    return {
        "median_ms": float(np.median(milliseconds)),
        "p95_ms": float(np.quantile(milliseconds, 0.95)),
        "tasks": tasks,
        "budget_ms": 5 + tasks,
    }
