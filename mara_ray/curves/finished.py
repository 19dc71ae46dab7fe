"""The finished trainings of a bank in the making: kept one file each, and compacted now and then.

A training that is finished lies whole in `parts/`, as JSON with its hash. When there are many, they are
moved into one Parquet file, `finished/NNNN.parquet`. A damaged part, or file of parts, counts as not
there, and so is trained again.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mara_ray.artifacts import hash_of, read_json, write_json, written_whole
from mara_ray.curves.candidates import Candidate
from mara_ray.errors import UserError

PARTS_PER_FILE = 256
SCHEMA = pa.schema([("curve_id", pa.string()), ("part", pa.string()), ("hash", pa.string())])


class FinishedTrainings:
    """What is finished in a directory.

    Args:
        directory: where `parts/` and `finished/` lie.
    """

    def __init__(self, directory: Path) -> None:
        self.parts, self.compacted = directory / "parts", directory / "finished"
        self._known: dict[str, dict[str, Any]] = {}  # curve id -> part
        for path in sorted(self.compacted.glob("*.parquet")):
            self._known.update(_read_compacted(path))
        for path in sorted(self.parts.glob("*.json")):
            part = _read_part(path)
            if part is not None:
                self._known[part["candidate"]["curve_id"]] = part
        self._num_loose = sum(1 for _ in self.parts.glob("*.json"))

    def get(self, candidate: Candidate) -> dict[str, Any] | None:
        """A finished training; None if there is none, or if it belongs to other settings."""
        part = self._known.get(candidate.curve_id)
        return part if part is not None and part["candidate"] == asdict(candidate) else None

    def add(self, part: dict[str, Any]) -> None:
        """Keep a training, whole or not at all."""
        curve_id = part["candidate"]["curve_id"]
        write_json(self.parts / f"{curve_id.replace('/', '-')}.json", {"part": part, "hash": hash_of(part)})
        self._known[curve_id] = part
        self._num_loose += 1
        if self._num_loose >= PARTS_PER_FILE:
            self.compact()

    def compact(self) -> None:
        """Move the loose parts into one file."""
        paths = sorted(self.parts.glob("*.json"))
        parts = [part for path in paths if (part := _read_part(path)) is not None]
        if parts:
            table = pa.table(
                {
                    "curve_id": [part["candidate"]["curve_id"] for part in parts],
                    "part": [json.dumps(part, sort_keys=True) for part in parts],
                    "hash": [hash_of(part) for part in parts],
                },
                schema=SCHEMA,
            )
            numbers = [int(path.stem) for path in self.compacted.glob("*.parquet")]
            with written_whole(self.compacted / f"{max(numbers, default=-1) + 1:04d}.parquet") as temporary:
                pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        for path in paths:
            path.unlink()
        self._num_loose = 0


def _read_part(path: Path) -> dict[str, Any] | None:
    try:
        content = read_json(path)
        return content["part"] if content["hash"] == hash_of(content["part"]) else None
    except (UserError, KeyError, TypeError):
        return None


def _read_compacted(path: Path) -> dict[str, dict[str, Any]]:
    try:
        rows = pq.ParquetFile(path, page_checksum_verification=True).read().to_pylist()
    except (OSError, pa.ArrowException):
        return {}
    parts = ((row["curve_id"], json.loads(row["part"]), row["hash"]) for row in rows)
    return {curve_id: part for curve_id, part, hash_ in parts if hash_ == hash_of(part)}
