"""The latest state of every task: in memory, so that a node may be lost, and on disk, so that all may be."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np

from mara_ray.artifacts import remove_parts, written_whole
from mara_ray.errors import UserError

SECONDS_BETWEEN_WRITES = 5.0
MOST_WRITING = 1 / 20  # share of the time that may go into writing


class States:
    """States by task, each with the points that the task had shown by then.

    Those on disk lie behind those in memory by some seconds; a run that is taken up again trains from there.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        """Find what an earlier run left.

        Raises:
            UserError: a file is damaged.
        """
        self._paths = [folder / f"{name}.state" for name in names]
        self._latest: dict[int, tuple[int, np.ndarray]] = {}
        self._changed: set[int] = set()
        self._due = time.monotonic() + SECONDS_BETWEEN_WRITES
        folder.mkdir(parents=True, exist_ok=True)
        remove_parts(folder)
        for task, path in enumerate(self._paths):
            if path.is_file():
                content = _read(path)
                self._latest[task] = content["points"], np.frombuffer(content["state"], np.uint8)

    def latest(self, task: int) -> tuple[np.ndarray | None, int]:
        """The state, uint8, and the points shown in it; None and 0 if there is none."""
        points, state = self._latest.get(task, (0, None))
        return state, points

    def keep(self, task: int, points: int, state: np.ndarray) -> None:
        """Put a newer state in the place of the old one."""
        self._latest[task] = points, state
        self._changed.add(task)

    def write(self, only: int | None = None) -> None:
        """Write what has changed, or one task's state alone.

        Raises:
            MachineError: the disk is full.
        """
        for task in sorted(self._changed if only is None else self._changed & {only}):
            points, state = self._latest[task]
            with written_whole(self._paths[task]) as temporary:
                temporary.write_bytes(pickle.dumps({"points": points, "state": state.tobytes()}))
            self._changed.discard(task)

    def write_if_due(self) -> None:
        """Write what has changed, unless it was done seconds ago or writing takes too much of the time."""
        started = time.monotonic()
        if started >= self._due:
            self.write()
            spent_s = time.monotonic() - started
            self._due = started + max(SECONDS_BETWEEN_WRITES, spent_s / MOST_WRITING)

    def drop(self, task: int) -> None:
        """Let go of the memory of a task that has left; its file stays."""
        self._latest.pop(task, None)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = pickle.loads(path.read_bytes())
        return {"points": int(content["points"]), "state": bytes(content["state"])}
    except Exception as error:
        raise UserError(f"state: {path} is damaged ({error}); delete it and run again") from error


def load_state(path: Path) -> Any:
    """What `state_dict` of a job gave last: the trained model of one that has met its target.

    Raises:
        UserError: the file is damaged. Read no file of unknown origin: it is a pickle.
    """
    return pickle.loads(_read(path)["state"])
