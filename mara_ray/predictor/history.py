"""The metrics file of a training whose worker may be on another machine than who follows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mara_ray.artifacts import written_whole
from mara_ray.storage import Storage


@dataclass(frozen=True)
class History:
    """One JSON object a line, an epoch each.

    Attributes:
        path: the file, on the machine of who started the training.
        storage: what both machines reach; None if the worker sees `path`.
        name: the file's name in the storage.
    """

    path: Path
    storage: Storage | None
    name: str

    def publish(self, rows: list[dict[str, float]]) -> None:
        """Called by the worker: all rows so far."""
        if self.storage is None:
            self.write(rows)
        else:
            self.storage.write(self.name, _text(rows).encode())

    def write(self, rows: list[dict[str, float]]) -> None:
        """Write the file."""
        with written_whole(self.path) as temporary:
            temporary.write_text(_text(rows))

    def num_rows(self) -> int:
        """Called by who follows: brings the file up to date, and counts its rows."""
        if self.storage is not None and (content := self.storage.read(self.name)) is not None:
            with written_whole(self.path) as temporary:
                temporary.write_bytes(content)
        return self.path.read_bytes().count(b"\n") if self.path.is_file() else 0


def _text(rows: list[dict[str, float]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
