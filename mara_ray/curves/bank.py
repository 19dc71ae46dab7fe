"""The CurveBank: loss curves of real trainings, one Parquet row each.

Axis letters: C curves, L points, G target levels.
A curve has L points; point 0 is the untrained loss and point n the mean loss of block n, so a task
that was served s blocks has seen n = s + 1 points. Everything that decides works on the smoothed
curve `ema_CL`; both raw and smoothed points are stored.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mara_ray import pretrained
from mara_ray.artifacts import hash_of, written_whole
from mara_ray.errors import UserError

EMA_ALPHA = 0.1
LOSS_FLOOR = 1e-3
NEVER = np.int32(2**30)  # the crossing of a target that the curve does not reach
SETS = ("id", "rl", "vit")
# Place among the accepted curves of a configuration, modulo 20 -> split: 60 % train, 15 % validation and
# 25 % test, interleaved, so that more curves leave the splits of the first ones alone.
SPLITS = {"T": "train", "V": "validation", "X": "test"}
SPLIT_PATTERN = "TXTVTTXTTXTVTXTTVTXT"

POINTS = ("raw", "ema")  # the columns of losses
SCHEMA = pa.schema(
    [
        ("curve_id", pa.string()),
        ("configuration", pa.string()),
        ("set", pa.string()),
        ("split", pa.string()),
        ("seed", pa.int64()),
        ("accepted", pa.bool_()),
        ("status", pa.string()),
        ("hyperparameters", pa.string()),
        ("raw", pa.list_(pa.float32())),
        ("ema", pa.list_(pa.float32())),
    ]
)


def located_bank(path: Path) -> Path:
    """The file of a bank: a path as it is, or the one that ships if the path says `standard`.

    Raises:
        UserError: there is no such file.
    """
    located = pretrained.BANK if str(path) == "standard" else path
    if not located.is_file():
        raise UserError(f"curve bank: {located} is missing; give the path of a Parquet file, or `standard`")
    return located


def smooth(raw_CL: np.ndarray) -> np.ndarray:
    """Bias-corrected exponential moving average (alpha 0.1, floor 1e-3), float32 (C, L)."""
    smoothed_CL = np.empty(raw_CL.shape, np.float32)
    mean_C = np.zeros(raw_CL.shape[0])
    for point in range(raw_CL.shape[1]):
        mean_C, smoothed_CL[:, point] = smooth_next(mean_C, raw_CL[:, point], point)
    return smoothed_CL


def smooth_next(mean_C: np.ndarray, raw_C: np.ndarray, point: int) -> tuple[np.ndarray, np.ndarray]:
    """Take in one more point: the running mean, float64 (C,), and the smoothed losses (C,)."""
    mean_C = (1 - EMA_ALPHA) * mean_C + EMA_ALPHA * raw_C
    return mean_C, np.maximum(mean_C / (1 - (1 - EMA_ALPHA) ** (point + 1)), LOSS_FLOOR)


def split_of(set_name: str, num_accepted_before: int) -> str:
    """The split of a configuration's next curve; sets out of distribution are for tests only."""
    if set_name != "id":
        return "test"
    return SPLITS[SPLIT_PATTERN[num_accepted_before % len(SPLIT_PATTERN)]]


def first_crossing(ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
    """Points n (1..L) that must be seen until the smoothed loss meets each target; `NEVER` if none.

    Returns:
        int32 (C, G).
    """
    crossing_CG = np.full(target_CG.shape, NEVER, np.int32)
    for level in range(target_CG.shape[1]):
        met_CL = ema_CL <= target_CG[:, level, None]
        crossing_CG[:, level] = np.where(met_CL.any(1), met_CL.argmax(1) + 1, NEVER)
    return crossing_CG


@dataclass(frozen=True)
class CurveBank:
    """Curves in memory, in the order of their ids.

    Attributes:
        curve_id, configuration, set, split, status, hyperparameters: str arrays (C,);
            `set` is id, rl or vit; `split` train, validation or test; `hyperparameters` JSON.
        seed: int64 (C,). accepted: bool (C,), False for curves that did not learn.
        raw_CL, ema_CL: float32 (C, L).
    """

    curve_id: np.ndarray
    configuration: np.ndarray
    set: np.ndarray
    split: np.ndarray
    seed: np.ndarray
    accepted: np.ndarray
    status: np.ndarray
    hyperparameters: np.ndarray
    raw_CL: np.ndarray
    ema_CL: np.ndarray

    def __len__(self) -> int:
        return len(self.curve_id)

    @property
    def length_points(self) -> int:
        """The cap L."""
        return int(self.ema_CL.shape[1])

    def rows(self, set_name: str, split: str | None = None) -> np.ndarray:
        """Row numbers (int64) of the accepted curves of a set, and of a split if one is given."""
        chosen = self.accepted & (self.set == set_name)
        if split is not None:
            chosen &= self.split == split
        return np.flatnonzero(chosen)

    def take(self, rows: np.ndarray) -> CurveBank:
        """The bank of some of the curves, in this order."""
        return CurveBank(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def target_losses(self, fractions_G: tuple[float, ...]) -> np.ndarray:
        """Targets at fractions of each curve's whole log-drop: L0 (Lmin / L0)^f, float32 (C, G).

        A fraction over 1 is never reached. A curve that never fell keeps its targets under L0.
        """
        initial_C = self.ema_CL[:, 0].astype(np.float64)
        drop_C = np.maximum(np.log(initial_C / self.ema_CL.min(1)), 1e-3)
        return (initial_C[:, None] * np.exp(-drop_C[:, None] * np.asarray(fractions_G))).astype(np.float32)

    @cached_property
    def content_hash(self) -> str:
        """A 16-digit hash of ids, seeds, flags and points."""
        columns = [getattr(self, field.name).tolist() for field in SCHEMA if field.name not in POINTS]
        return hash_of(columns, self.raw_CL.tobytes().hex())

    def write(self, path: Path) -> None:
        """Write the bank to one Parquet file, whole or not at all."""
        columns = [pa.array(getattr(self, f.name).tolist(), f.type) for f in list(SCHEMA)[:8]]
        columns += [
            pa.array(list(points_CL), pa.list_(pa.float32())) for points_CL in (self.raw_CL, self.ema_CL)
        ]
        table = pa.Table.from_arrays(columns, schema=SCHEMA)
        with written_whole(path) as temporary:
            pq.write_table(
                table,
                temporary,
                compression="zstd",
                compression_level=15,
                use_dictionary=[f.name for f in SCHEMA if f.name not in POINTS],
                column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in POINTS},
                write_page_checksum=True,
            )

    @classmethod
    def read(cls, path: Path) -> CurveBank:
        """Read and check a bank.

        Raises:
            UserError: the file is missing, truncated, of another schema, or holds impossible curves.
        """
        remedy = "make it again with `mara curves generate`"
        if not path.is_file():
            raise UserError(f"curve bank: {path} is missing; {remedy}")
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                table = file.read()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"curve bank: {path} is not a readable Parquet file; {remedy}") from error
        if not table.schema.equals(SCHEMA):
            names = ", ".join(table.schema.names)
            raise UserError(f"curve bank: {path} has another schema (columns {names}); {remedy}")
        if table.num_rows == 0:
            raise UserError(f"curve bank: {path} holds no curve; {remedy}")
        return cls.from_rows(table.to_pylist(), source=str(path))

    @classmethod
    def from_rows(cls, rows: list[dict], source: str) -> CurveBank:
        """Build a bank from rows of `SCHEMA`, sorted by id.

        Raises:
            UserError: duplicate ids, curves of different lengths, negative or non-finite losses.
        """
        rows = sorted(rows, key=lambda row: row["curve_id"])
        ids = [row["curve_id"] for row in rows]
        for first, second in itertools.pairwise(ids):
            if first == second:
                raise UserError(f"curve bank: {source} holds curve {first!r} twice; remove one")
        for row in rows:
            if row["set"] not in SETS or row["split"] not in SPLITS.values():
                raise UserError(
                    f"curve bank: {source}: curve {row['curve_id']!r} is of set {row['set']!r} and split"
                    f" {row['split']!r}; sets are {', '.join(SETS)}, splits {', '.join(SPLITS.values())}"
                )
        length = len(rows[0]["raw"])
        for row in rows:
            if len(row["raw"]) != length or len(row["ema"]) != length:
                raise UserError(
                    f"curve bank: {source}: curve {row['curve_id']!r} has {len(row['raw'])} points,"
                    f" not {length}; generate it again"
                )
        raw_CL = np.array([row["raw"] for row in rows], np.float32)
        ema_CL = np.array([row["ema"] for row in rows], np.float32)
        bad = np.flatnonzero(
            ~(np.isfinite(raw_CL) & (raw_CL >= 0)).all(1) | ~(np.isfinite(ema_CL) & (ema_CL > 0)).all(1)
        )
        if len(bad):
            raise UserError(
                f"curve bank: {source}: curve {ids[bad[0]]!r} has a negative or non-finite loss;"
                " generate it again"
            )
        columns = {f.name: np.array([row[f.name] for row in rows]) for f in SCHEMA if f.name not in POINTS}
        return cls(**columns, raw_CL=raw_CL, ema_CL=ema_CL)

    def hyperparameters_of(self, row: int) -> dict:
        """The hyperparameters of one curve."""
        return dict(json.loads(str(self.hyperparameters[row])))
