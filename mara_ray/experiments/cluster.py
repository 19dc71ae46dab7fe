"""Connect to Ray: a private local one, or a cluster by its address."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from mara_ray.config import ClusterConfig
from mara_ray.errors import MachineError, UserError

REACH_SECONDS = 5.0
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty SETTINGS
SETTINGS_FRAME = b"\x04"  # the type of the frame a gRPC server sends first (RFC 9113, section 3.4)
WORKER_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


@contextmanager
def connected(cluster: ClusterConfig) -> Iterator[None]:
    """Hold a Ray connection; one that exists already (a job's, a test's) is used and left alone.

    Raises:
        UserError: the address is malformed.
        MachineError: no Ray answers at the address, or a private one cannot be started.
    """
    if ray.is_initialized():
        yield
        return
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if address not in (None, "auto", "local"):
        check_reachable(str(address))
    private = address in (None, "local")
    if private:  # Ray turns token authentication on; the token is ours, and never touches a disk
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
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
    try:
        yield
    finally:
        ray.shutdown()


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
