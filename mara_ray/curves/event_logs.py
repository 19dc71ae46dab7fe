"""Read scalars back from TensorBoard event files and from W&B offline runs.

Both are sequences of checksummed protocol-buffer records; the message types come with tensorboardX and
wandb. A record that was cut off at the end of a file (the writer was killed) ends it without an error.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from mara_ray.errors import UserError

Scalars = dict[str, list[tuple[float, float]]]  # name -> (step, value) in the order they were logged

WANDB_HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
WANDB_BLOCK = 32768
RECORD_HEADER = 7  # checksum, length, kind
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def tensorboard_scalars(path: Path) -> Scalars:
    """All scalars of one event file.

    Raises:
        UserError: not an event file, or damaged before its end.
    """
    from tensorboardX.proto.event_pb2 import Event

    scalars: Scalars = {}
    for number, record in enumerate(_tensorboard_records(path)):
        try:
            event = Event.FromString(record)
        except Exception as error:  # DecodeError of whichever protobuf is installed
            raise UserError(f"import: {path}, record {number}: not an event ({error})") from error
        for value in event.summary.value:
            if value.HasField("simple_value"):
                scalars.setdefault(value.tag, []).append((float(event.step), value.simple_value))
            elif value.HasField("tensor") and value.metadata.plugin_data.plugin_name == "scalars":
                number_of = value.tensor.float_val or struct.unpack("<f", value.tensor.tensor_content[:4])
                scalars.setdefault(value.tag, []).append((float(event.step), float(number_of[0])))
    return scalars


def _tensorboard_records(path: Path) -> Iterator[bytes]:
    """Records of a TFRecord file: length, its checksum, data, their checksum."""
    from tensorboardX.crc32c import crc32c

    def masked(data: bytes) -> int:
        checksum = crc32c(data)
        return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF

    content, place, number = path.read_bytes(), 0, 0
    while place + 12 <= len(content):
        length, length_checksum = struct.unpack_from("<QI", content, place)
        if masked(content[place : place + 8]) != length_checksum:
            raise UserError(f"import: {path}, record {number}: damaged, or not an event file; leave it out")
        end = place + 12 + length
        if end + 4 > len(content):
            return
        data = content[place + 12 : end]
        if masked(data) != struct.unpack_from("<I", content, end)[0]:
            raise UserError(f"import: {path}, record {number}: damaged; leave the file out")
        yield data
        place, number = end + 4, number + 1


def wandb_scalars(path: Path) -> Scalars:
    """All numbers in the history of one offline run (`run-*.wandb`).

    Raises:
        UserError: not a run's file, or damaged before its end.
    """
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    scalars: Scalars = {}
    for number, data in enumerate(_wandb_records(path)):
        try:
            record = Record.FromString(data)
        except Exception as error:
            raise UserError(f"import: {path}, record {number}: not a W&B record ({error})") from error
        if not record.HasField("history"):
            continue
        values = {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
        }
        step = float(values.get("_step", record.history.step.num))
        for name, value in values.items():
            if isinstance(value, int | float) and not name.startswith("_"):
                scalars.setdefault(name, []).append((step, float(value)))
    return scalars


def _wandb_records(path: Path) -> Iterator[bytes]:
    """Records of a log of blocks of 32 KiB (the format of LevelDB's log), after W&B's header."""
    content = path.read_bytes()
    if content[: len(WANDB_HEADER)] != WANDB_HEADER:
        raise UserError(f"import: {path} is not the file of a W&B offline run; leave it out")
    place, number, pieces = len(WANDB_HEADER), 0, b""
    while place + RECORD_HEADER <= len(content):
        if (
            WANDB_BLOCK - place % WANDB_BLOCK < RECORD_HEADER
        ):  # too little room: the rest of the block is padding
            place += WANDB_BLOCK - place % WANDB_BLOCK
            continue
        checksum, length, kind = struct.unpack_from("<IHB", content, place)
        data = content[place + RECORD_HEADER : place + RECORD_HEADER + length]
        if len(data) < length:
            return
        if zlib.crc32(bytes([kind]) + data) != checksum:
            raise UserError(f"import: {path}, record {number}: damaged; leave the file out")
        place += RECORD_HEADER + length
        pieces = data if kind in (WHOLE, FIRST) else pieces + data
        if kind in (WHOLE, LAST):
            yield pieces
            number += 1
