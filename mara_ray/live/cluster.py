"""The nodes as Ray actors: dispatch, time limits, and what happens when a node is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ray
import torch
from ray.actor import ActorHandle
from ray.exceptions import (
    GetTimeoutError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayError,
    RayTaskError,
)

from mara_ray.errors import MachineError, UserError
from mara_ray.live.jobs import Jobs
from mara_ray.live.node import Answer, Node
from mara_ray.live.states import States

MOST_LOSSES = 3  # workers that a single block may cost before its job is held to be the reason
START_SECONDS = 120.0
STORE_REMEDY = "give Ray more (`ray start --object-store-memory`), or let state_dict hold less"


@dataclass(frozen=True)
class Request:
    """A point of a task that a node is to give."""

    task: int
    node: int
    point: int


class _Worker(Node):
    """A node in a process of its own."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        super().__init__()

    def process(self) -> int:
        """The worker's process."""
        return os.getpid()


@dataclass(eq=False)
class _Place:
    """A node's worker: a new one takes the place of one that is lost."""

    number: int
    worker: ActorHandle
    ready: ray.ObjectRef | None  # pending until the worker has answered once
    load: int = 0  # calls in flight
    until: float = 0.0  # when they must have ended


@dataclass(frozen=True)
class _Call:
    """A request on its way."""

    request: Request
    place: _Place
    until: float
    losses: int  # workers that it has cost


class RayNodes:
    """M workers. While one is being replaced, the others do its blocks.

    A worker that is lost loses the block that it was at: the states of all tasks are here after each.

    Attributes:
        num_lost: workers lost so far.
        num_moves: points given by another worker than the one before.
    """

    def __init__(
        self, num_nodes: int, jobs: Jobs, states: States, cpus: float, gpus: float, say: Callable[[str], None]
    ) -> None:
        """Start the workers, and wait until they are there.

        Raises:
            UserError: Ray has less than what the nodes ask for.
            MachineError: they do not come.
        """
        self._jobs, self._states, self._say = jobs, states, say
        for name, each in (("CPU", cpus), ("GPU", gpus)):
            there = ray.cluster_resources().get(name, 0.0)
            if num_nodes * each > there + 1e-9:
                raise UserError(
                    f"--nodes: {num_nodes} nodes of {each:g} {name} are more than the {there:g} that Ray has;"
                    f" ask for fewer, or for less with --{name.lower()}s-per-node"
                )
        self._options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": "SPREAD"}
        self._holder: dict[int, _Place] = {}  # which worker gave the latest point of a task
        self.num_lost = self.num_moves = 0
        self._places = [self._new_place(number) for number in range(num_nodes)]
        self._await(num_nodes)

    def _new_place(self, number: int) -> _Place:
        worker = ray.remote(_Worker).options(**self._options).remote()
        return _Place(number, worker, worker.ping.remote())

    def _await(self, number: int) -> None:
        """Wait for so many workers to be there."""
        pings = [place.ready for place in self._places if place.ready is not None]
        there, _ = ray.wait(pings, num_returns=number, timeout=START_SECONDS)
        if len(there) < number:
            raise MachineError(
                f"Ray: the nodes' workers did not start within {START_SECONDS:g} s; see `ray status`"
            )
        self._welcome()

    def run(self, requests: Sequence[Request]) -> dict[int, Answer]:
        """Have all points given; the answer to each task's request.

        A task that raises, hangs, or kills its worker again and again, is answered with an error.

        Raises:
            MachineError: Ray's object store is full, or no worker can be had.
        """
        self._welcome()
        calls = dict(self._send(request) for request in requests)
        answers: dict[int, Answer] = {}
        while calls:
            patience = max(0.0, min(call.until for call in calls.values()) - time.monotonic())
            done, _ = ray.wait(list(calls), timeout=patience)
            now = time.monotonic()
            for reference in done or [late for late, call in calls.items() if call.until <= now]:
                call = calls.pop(reference)
                call.place.load -= 1
                answer = self._answer(reference, call)
                if answer is None:  # it was lost with its worker
                    calls.update([self._send(call.request, losses=call.losses + 1)])
                elif answer.absent:
                    calls.update([self._send(call.request, losses=call.losses, with_state=True)])
                else:
                    answers[call.request.task] = answer
        return answers

    def drop(self, task: int) -> None:
        """Forget a task that has left."""
        self._states.drop(task)
        holder = self._holder.pop(task, None)
        if holder in self._places:
            holder.worker.drop.remote(task)

    def close(self) -> None:
        """End the workers."""
        for place in self._places:
            ray.kill(place.worker)

    def _send(
        self, request: Request, losses: int = 0, with_state: bool = False
    ) -> tuple[ray.ObjectRef, _Call]:
        place, job = self._choose(request), self._jobs.jobs[request.task]
        state, points = self._states.latest(request.task)
        holder = self._holder.get(request.task)
        passed = None
        if state is not None and (with_state or holder is not place):
            self.num_moves += holder is not None
            try:
                passed = ray.put(state)
            except (ObjectStoreFullError, OutOfDiskError) as error:
                raise self._full(request.task) from error
        reference = place.worker.point.remote(request.task, job, request.point, passed, points)
        blocks = 1 + request.point - points  # those that were lost come first
        place.until = max(place.until, time.monotonic()) + blocks * job.block_timeout
        place.load += 1
        return reference, _Call(request, place, place.until, losses)

    def _choose(self, request: Request) -> _Place:
        """The node that was asked for, the one that holds a task without a state, or one that is there."""
        wanted, holder = self._places[request.node], self._holder.get(request.task)
        if holder in self._places and self._states.latest(request.task)[0] is None:
            wanted = holder
        if wanted.ready is None:
            return wanted
        if all(place.ready is not None for place in self._places):
            self._await(1)
        there = [place for place in self._places if place.ready is None]
        return min(there, key=lambda place: place.load)

    def _welcome(self) -> None:
        """See which of the workers that were started have come."""
        for place in list(self._places):
            if place.ready is None or not ray.wait([place.ready], timeout=0)[0]:
                continue
            try:
                ray.get(place.ready)
                place.ready = None
                if self.num_lost:
                    self._say(f"node {place.number} is back")
            except RayError:
                self._places[place.number] = self._new_place(place.number)

    def _answer(self, reference: ray.ObjectRef, call: _Call) -> Answer | None:
        """What came of a call; None if it is to be sent again."""
        request, name = call.request, self._jobs.jobs[call.request.task].name
        try:
            answer: Answer = ray.get(reference, timeout=0)
        except GetTimeoutError:
            self._replace(call.place)
            limit = self._jobs.jobs[request.task].block_timeout
            return Answer(error=f"block {request.point} of {name} took more than {limit:g} s")
        except (ObjectStoreFullError, OutOfDiskError) as error:
            raise self._full(request.task) from error
        except RayTaskError as error:
            if isinstance(error.cause, ObjectStoreFullError | OutOfDiskError):
                raise self._full(request.task) from error
            raise
        except RayError as error:
            if call.place in self._places and isinstance(error, RayActorError):
                self._say(f"node {call.place.number} was lost; the others do its blocks until it is back")
                self._replace(call.place)
            if call.losses + 1 < MOST_LOSSES:
                return None
            return Answer(error=f"block {request.point} of {name} lost its worker {MOST_LOSSES} times")
        if answer.error is None and not answer.absent:
            self._holder[request.task] = call.place
        if answer.state is not None:
            self._states.keep(request.task, request.point + 1, answer.state)
        return answer

    def _replace(self, place: _Place) -> None:
        """Start a new worker in the place of one that is lost or hangs."""
        if place in self._places:
            ray.kill(place.worker)
            self._places[place.number] = self._new_place(place.number)
            self.num_lost += 1

    def _full(self, task: int) -> MachineError:
        name = self._jobs.jobs[task].name
        state, _ = self._states.latest(task)
        size = "" if state is None else f", {len(state) / 1e6:.0f} MB"
        return MachineError(
            f"Ray: the object store has no room for the state of {name}{size}; {STORE_REMEDY}"
        )
