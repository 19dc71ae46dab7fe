"""Connect to Ray, a private local one or a cluster by its address, and wait for tasks there."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group

from mara_ray.config import ClusterConfig
from mara_ray.errors import MachineError, UserError
from mara_ray.pools import cpu_nodes

REACH_SECONDS = 5.0
TICK_SECONDS = 1.0
OOM_RETRIES = "3"
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty SETTINGS
SETTINGS_FRAME = b"\x04"  # the type of the frame a gRPC server sends first (RFC 9113, section 3.4)
ANYWHERE = "DEFAULT"  # scheduling that leaves the resources of a Tune trial, which hold no CPU for tasks
WORKER_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def connect(cluster: ClusterConfig) -> None:
    """Connect to Ray until the process ends; a connection that exists already is used.

    Raises:
        UserError: the address is malformed.
        MachineError: no Ray answers at the address, or a private one cannot be started.
    """
    if ray.is_initialized():
        return
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if address not in (None, "auto", "local"):
        check_reachable(str(address))
    private = address in (None, "local")
    if private:  # Ray turns token authentication on; the token is ours, and never touches a disk
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ.setdefault("RAY_task_oom_retries", OOM_RETRIES)  # Ray would try for ever
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address="local" if private else address,
            num_cpus=cluster.num_cpus if private else None,
            include_dashboard=False if private else None,
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env={"env_vars": WORKER_ENVIRONMENT},
        )
    except (ConnectionError, RuntimeError, TimeoutError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        where = "start on this machine" if private else f"connect to {address}"
        raise MachineError(f"Ray: could not {where} ({reason}); see `mara doctor`") from error
    if callable(handler):  # a job's own, in the place of which Ray has put another
        signal.signal(signal.SIGTERM, handler)


def check_reachable(address: str) -> None:
    """Refuse an address at which no Ray answers, before Ray itself tries for minutes.

    Raises:
        UserError: not of the form host:port.
        MachineError: nothing answers there, or something that does not speak gRPC.
    """
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not port.isdigit():
        raise UserError(f"cluster.address: {address!r} is not host:port; mend it, or leave it null")
    remedy = "start the cluster, or leave it null for a local Ray"
    try:
        with socket.create_connection((host, int(port)), timeout=REACH_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            connection.sendall(HTTP2_PREFACE)
            answer = connection.recv(4)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MachineError(f"cluster.address: nothing answers at {address} ({reason}); {remedy}") from error
    if answer[3:4] != SETTINGS_FRAME:
        raise MachineError(
            f"cluster.address: what answers at {address} is not Ray; free the port, or {remedy}"
        )


def gang(num_cpus: int) -> PlacementGroup:
    """CPUs for a task and its actors, given all at once: two such tasks cannot wait for each other."""
    selector = cpu_nodes()
    selectors = [selector] * num_cpus if selector else None
    return placement_group([{"CPU": 1}] * num_cpus, bundle_label_selector=selectors)


def wait_for(
    tasks: Sequence[ray.ObjectRef],
    tick: Callable[[int], None],
    take: Callable[[ray.ObjectRef, Any], None] = lambda task, result: None,
) -> None:
    """Wait until all tasks are done; `tick` is told once a second how many are, `take` each one's result.

    Raises:
        Exception: what a task raised, as it was.
        MachineError: a task's worker died more often than Ray tries again.
    """
    pending = list(tasks)
    while pending:
        done, pending = ray.wait(pending, num_returns=len(pending), timeout=TICK_SECONDS)
        try:
            for task, result in zip(done, ray.get(done), strict=True):
                take(task, result)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            reason = str(error).splitlines()[0]
            raise MachineError(f"Ray: a task was lost ({reason}); run again to go on from here") from error
        tick(len(tasks) - len(pending))
