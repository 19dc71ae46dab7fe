"""The journal of a live run: a line for every step, checksummed, only ever added to."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from mara_ray.errors import MachineError, UserError


class Journal:
    """Lines `checksum JSON`. What was written is there after the process is killed.

    A last line that is cut off was never acted upon: it is removed, and its step is done again.
    """

    def __init__(self, path: Path) -> None:
        """Open a journal, or begin one.

        Raises:
            UserError: it is damaged before its last line, or cannot be written.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a+b")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise UserError(
                f"journal: {path} cannot be written ({error}); choose another with --out"
            ) from error
        self.records = list(self._read())

    def _read(self) -> Iterator[dict[str, Any]]:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            record = _record_of(line)
            if record is None:
                if self._file.read(1):
                    raise UserError(
                        f"journal: line {number} of {self.path} is damaged; delete the folder and run again"
                    )
                break
            whole += len(line)
            yield record
        self._file.truncate(whole)

    def append(self, record: dict[str, Any]) -> None:
        """Add a record.

        Raises:
            MachineError: the disk is full.
        """
        text = json.dumps(record, separators=(",", ":")).encode()
        try:
            self._file.write(b"%08x %s\n" % (zlib.crc32(text), text))
            self._file.flush()
        except OSError as error:
            raise MachineError(
                f"journal: {self.path} cannot grow ({error}); free some space and run again"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _record_of(line: bytes) -> dict[str, Any] | None:
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None
