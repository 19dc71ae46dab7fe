"""Locks on directories, which end with the process that holds them."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mara_ray.errors import UserError


@contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock at `path`, which ends with the process that holds it; wait for it, or refuse.

    Raises:
        UserError: another holds it, or it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "w")  # noqa: SIM115 - held until the end of the block
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"--out: {path.parent} cannot be written ({reason}); choose another") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise UserError(f"--out: another run is at work in {path.parent}; choose another") from error
        yield
