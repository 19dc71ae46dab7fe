"""The simulator's specification: one episode in plain Python, slow and readable.

The engine must do exactly this (a property test compares them on random workloads and actions).
Step order: observe, allocate, serve (a switch or move may cost steps), success check, t += 1, expiry, admit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.curves.bank import EMA_ALPHA, LOSS_FLOOR
from mara_ray.simulator.losses import noise_factors, raw_losses
from mara_ray.simulator.state import READY_POINTS, CurveReplay
from mara_ray.workload.episodes import Workload


@dataclass(eq=False)
class Task:
    """A task and what has become of it so far."""

    number: int
    arrival: int
    deadline: int
    losses: list[float]
    target: float
    service: float = 0.0
    finished: int = -1
    started: int = -1
    ready: int = -1
    home: Node | None = None  # that served it last

    @property
    def num_seen(self) -> int:
        """Points seen: the untrained loss, and one for each whole point of service."""
        return min(1 + math.floor(self.service), len(self.losses))

    @property
    def met(self) -> bool:
        """Whether a loss seen so far is at or under the target."""
        return any(loss <= self.target for loss in self.losses[: self.num_seen])

    @property
    def progress(self) -> float:
        """Log progress q = clip(log(L0 / max(L, target)) / log(L0 / target), 0, 1)."""
        initial, loss = self.losses[0], self.losses[self.num_seen - 1]
        if initial <= self.target:
            return 0.0
        progress = math.log(initial / max(loss, self.target)) / math.log(initial / self.target)
        return min(max(progress, 0.0), 1.0)


@dataclass(eq=False)
class Node:
    """A node, the task it holds, and the steps of switching it still owes."""

    speed: float
    holds: Task | None = None
    delay: int = 0


class ReferenceSimulator:
    """One episode. `slots` and `queue` hold the tasks present, `past` those that have left."""

    def __init__(
        self,
        config: SimulatorConfig,
        episode_steps: int,
        replay: CurveReplay,
        workload: Workload,
        episode: int,
    ):
        """Start one episode of a workload at step 0 and admit the first arrivals."""
        self.config = config
        self.episode_steps = episode_steps
        self.time = 0
        self.nodes = [Node(speed) for speed in config.node_speeds or (1.0,) * config.num_nodes]
        self.slots: list[Task | None] = [None] * config.num_slots
        self.queue: list[Task] = []
        self.past: list[Task] = []
        self.future = [
            Task(
                number=number,
                arrival=int(workload.arrival_BJ[episode, number]),
                deadline=min(int(workload.deadline_BJ[episode, number]), episode_steps),
                losses=_losses(config, replay, workload, episode, number),
                target=float(
                    replay.target_CG[workload.curve_BJ[episode, number], workload.level_BJ[episode, number]]
                ),
            )
            for number in range(int(workload.num_tasks_B[episode]))
        ]
        self._admit()

    @property
    def potential(self) -> float:
        """The sum of q over the tasks in slots; 0 at T by definition."""
        if self.time == self.episode_steps:
            return 0.0
        return sum(task.progress for task in self.slots if task)

    def step(self, action: list[int]) -> tuple[float, int, int]:
        """Move on by one step.

        Args:
            action: for each node 0 (idle) or a slot 1..K.

        Returns:
            Reward, completed tasks, expired tasks.
        """
        potential = self.potential
        self._serve(action)
        completed = [task for task in self.slots if task and task.met]
        for task in completed:
            task.finished = self.time
        self.time += 1
        expired = [task for task in self._present() if task not in completed and task.deadline <= self.time]
        self._remove(completed + expired)
        dropped = self._admit()
        reward = len(completed) + self.config.potential_weight * (self.potential - potential)
        return reward, len(completed), len(expired) + dropped

    def _serve(self, action: list[int]) -> None:
        """Each busy node takes its task up if it does not hold it, and serves it when no switch is owed."""
        chosen = [self.slots[slot - 1] if slot > 0 else None for slot in action]
        for node, task in zip(self.nodes, chosen, strict=True):
            if task is None:
                continue
            if node.holds is not task:
                node.delay = self.config.switch_cost_steps
                if task.home not in (None, node):
                    node.delay += self.config.migration_cost_steps
                for other in self.nodes:
                    if other.holds is task:
                        other.holds = None
                node.holds = task
            if node.delay > 0:
                node.delay -= 1
                continue
            if task.started < 0:
                task.started = self.time
            task.service += node.speed
            task.home = node
            if task.ready < 0 and task.num_seen >= READY_POINTS:
                task.ready = self.time

    def _present(self) -> list[Task]:
        return [task for task in self.slots if task] + self.queue

    def _remove(self, leaving: list[Task]) -> None:
        self.past += leaving
        self.slots = [None if task in leaving else task for task in self.slots]
        self.queue = [task for task in self.queue if task not in leaving]
        for node in self.nodes:
            if node.holds in leaving:
                node.holds = None

    def _admit(self) -> int:
        """Queue the arrivals of this step and fill free slots in order of arrival; the tasks dropped."""
        if self.time < self.episode_steps:
            self.queue += [task for task in self.future if task.arrival == self.time]
        for slot, occupant in enumerate(self.slots):
            if occupant is None and self.queue:
                self.slots[slot] = self.queue.pop(0)
        if self.config.overflow == "defer":
            return 0
        dropped = len(self.queue)
        self._remove(list(self.queue))
        return dropped


def _losses(
    config: SimulatorConfig, replay: CurveReplay, workload: Workload, episode: int, number: int
) -> list[float]:
    """The smoothed losses of a task: its curve's, or those of the noisy raw losses."""
    curve = workload.curve_BJ[episode, number]
    if config.loss_noise == 0:
        return replay.ema_CL[curve].tolist()
    raw = raw_losses(replay)[curve].tolist()
    factors = noise_factors(workload, episode, number, len(raw), config.loss_noise, config.noise_seed)
    smoothed, mean = [], 0.0
    for point, (loss, factor) in enumerate(zip(raw, factors.tolist(), strict=True)):
        mean = (1 - EMA_ALPHA) * mean + EMA_ALPHA * (loss * factor)
        corrected = mean / (1 - (1 - EMA_ALPHA) ** (point + 1))
        smoothed.append(float(np.float32(max(corrected, LOSS_FLOOR))))
    return smoothed
