"""Curve sets from elsewhere, brought to the bank's schema.

Four forms are read: a long table (CSV or Parquet) of curve, step and loss; a folder of TensorBoard event
files, one curve per folder that holds some; a folder of W&B offline runs, one curve each; and JSON in
the style of TaskSet (Metz et al. 2020). Axis letters: C curves, S steps of an outside curve, L points.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.integrate import cumulative_trapezoid

from mara_ray.curves.bank import CurveBank, smooth, split_of
from mara_ray.curves.candidates import status_of
from mara_ray.curves.event_logs import Scalars, tensorboard_scalars, wandb_scalars
from mara_ray.errors import UserError

COLUMNS = ("curve", "step", "loss")


@dataclass
class OutsideCurve:
    """One curve as it was found: losses at increasing steps; `add` refuses what cannot be one."""

    name: str
    steps: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def add(self, step: Any, loss: Any, place: str) -> None:
        """Take one more point.

        Raises:
            UserError: no number, a negative or non-finite loss, or a step that does not increase.
        """
        values = []
        for label, text in (("step", step), ("loss", loss)):
            try:
                values.append(float(text))
            except (TypeError, ValueError) as error:
                raise UserError(
                    f"import: {place}: {label} {text!r} is not a number; mend or drop it"
                ) from error
            if not math.isfinite(values[-1]) or (label == "loss" and values[-1] < 0):
                raise UserError(
                    f"import: {place}: {label} {text!r} of curve {self.name!r} is negative or not finite;"
                    " drop the curve, or cut it before there"
                )
        if self.steps and values[0] <= self.steps[-1]:
            raise UserError(
                f"import: {place}: step {step} of curve {self.name!r} comes twice or out of order; sort the"
                " curve's steps, and give two curves two names"
            )
        self.steps.append(values[0])
        self.losses.append(values[1])


def import_curves(
    path: Path, scalar: str | None, configuration: str, set_name: str, length_points: int
) -> tuple[CurveBank, str]:
    """Read outside curves, resample them to the bank's length, and say how.

    Args:
        path: a .csv, .parquet or .json file, or a folder of event files or offline runs.
        scalar: name of the logged loss; needed when a folder's logs hold several scalars.
        configuration: name the curves get in the bank.
        set_name: "id", "rl" or "vit".
        length_points: points L they get.

    Returns:
        The bank, and one line that says what was resampled.

    Raises:
        UserError: the file, line or record that cannot be used, and what to do.
    """
    curves = read_curves(path, scalar)
    raw_CL = np.array([resample(curve, length_points) for curve in curves], np.float32)
    ema_CL = smooth(raw_CL)
    rows, num_accepted = [], 0
    for curve, raw_L, ema_L in zip(curves, raw_CL, ema_CL, strict=True):
        status = status_of(raw_L)
        origin = {"source": path.name, "curve": curve.name, "points": len(curve.steps)}
        rows.append(
            {
                "curve_id": f"{configuration}/{curve.name}",
                "configuration": configuration,
                "set": set_name,
                "split": split_of(set_name, num_accepted),
                "seed": 0,
                "accepted": status == "ok",
                "status": status,
                "hyperparameters": json.dumps(origin, sort_keys=True),
                "raw": raw_L.tolist(),
                "ema": ema_L.tolist(),
            }
        )
        num_accepted += status == "ok"
    lengths = [len(curve.steps) for curve in curves if len(curve.steps) != length_points]
    said = f"{len(curves)} curves, {num_accepted} of them accepted as learning"
    if lengths:
        said += f"; {len(lengths)} resampled from {min(lengths)}-{max(lengths)} points to {length_points}"
    return CurveBank.from_rows(rows, source=str(path)), said


def read_curves(path: Path, scalar: str | None) -> list[OutsideCurve]:
    """Read outside curves as they are; see `import_curves`."""
    curves = list(_read(path, scalar))
    if not curves:
        raise UserError(f"import: {path} holds no curve")
    for curve in curves:
        if len(curve.steps) < 2:
            raise UserError(
                f"import: {path}: curve {curve.name!r} has {len(curve.steps)} point; two are needed"
            )
    return curves


def resample(curve: OutsideCurve, length_points: int) -> np.ndarray:
    """A curve of L points: its first loss, then its mean over each of L - 1 equal spans of steps, (L,).

    Between its points a curve is taken as straight; one that has L points already stays as it is.
    """
    step_S, loss_S = np.array(curve.steps), np.array(curve.losses)
    if len(step_S) == length_points:
        return loss_S
    edge_L = np.linspace(step_S[0], step_S[-1], length_points)
    knots = np.union1d(step_S, edge_L)
    area = cumulative_trapezoid(np.interp(knots, step_S, loss_S), knots, initial=0)
    area_L = area[np.searchsorted(knots, edge_L)]
    return np.append(loss_S[0], np.maximum(0, np.diff(area_L) / np.diff(edge_L)))


def _read(path: Path, scalar: str | None) -> Iterable[OutsideCurve]:
    if path.is_dir():
        wandb_files = sorted(path.rglob("*.wandb"))
        if wandb_files:
            return _logged(
                {str(p.parent.relative_to(path)): [wandb_scalars(p)] for p in wandb_files}, path, scalar
            )
        folders: dict[str, list[Scalars]] = {}
        for event_file in sorted(path.rglob("*tfevents*")):
            name = str(event_file.parent.relative_to(path))
            folders.setdefault(name, []).append(tensorboard_scalars(event_file))
        if not folders:
            raise UserError(f"import: {path} holds neither TensorBoard event files nor W&B offline runs")
        return _logged(folders, path, scalar)
    if not path.is_file():
        raise UserError(f"import: {path} is missing; give a file, or a folder of logs")
    readers = {".csv": _csv_rows, ".parquet": _parquet_rows}
    if path.suffix in readers:
        return _from_rows(readers[path.suffix](path))
    if path.suffix == ".json":
        return _taskset(path)
    raise UserError(f"import: {path} is no .csv, .parquet or .json file, and no folder of logs")


def _from_rows(rows: Iterable[tuple[str, Any, Any, Any]]) -> list[OutsideCurve]:
    curves: dict[str, OutsideCurve] = {}
    for place, name, step, loss in rows:
        curves.setdefault(str(name), OutsideCurve(str(name))).add(step, loss, place)
    return list(curves.values())


def _csv_rows(path: Path) -> Iterator[tuple[str, Any, Any, Any]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            _check_columns(path, reader.fieldnames or [])
            for row in reader:
                if None in row or None in row.values():
                    raise UserError(
                        f"import: {path}, line {reader.line_num}: wrong number of fields; mend the line"
                    )
                curve, step, loss = (row[column] for column in COLUMNS)
                yield f"{path}, line {reader.line_num}", curve, step, loss
        except (csv.Error, UnicodeDecodeError) as error:
            raise UserError(
                f"import: {path}, line {reader.line_num}: not CSV ({error}); mend the file"
            ) from error


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any, Any, Any]]:
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"import: {path} is not a readable Parquet file ({error}); write it again") from error
    _check_columns(path, table.column_names)
    columns = (table[column].to_pylist() for column in COLUMNS)
    for number, values in enumerate(zip(*columns, strict=True), start=1):
        yield (f"{path}, row {number}", *values)


def _check_columns(path: Path, names: Iterable[str]) -> None:
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise UserError(f"import: {path} lacks the column {missing[0]!r}; it needs {', '.join(COLUMNS)}")


def _logged(runs: dict[str, list[Scalars]], path: Path, scalar: str | None) -> Iterator[OutsideCurve]:
    names = sorted({name for files in runs.values() for scalars in files for name in scalars})
    if scalar is None and len(names) == 1:
        scalar = names[0]
    if scalar not in names:
        asked = "hold several scalars" if scalar is None else f"hold no scalar {scalar!r}"
        raise UserError(f"import: the logs of {path} {asked}; choose with --scalar one of {', '.join(names)}")
    for run, files in runs.items():
        curve = OutsideCurve(run)
        # A run that was resumed logs some steps again: the last word counts.
        loss_of = {step: loss for scalars in files for step, loss in scalars.get(scalar, [])}
        for number, (step, loss) in enumerate(sorted(loss_of.items())):
            curve.add(step, loss, f"{path / run}, {scalar}, value {number}")
        if curve.steps:
            yield curve


def _taskset(path: Path) -> Iterator[OutsideCurve]:
    """{"xs": steps (S,), "ys": losses (C, S), or (C, replicas, S), or that with the training loss first}."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"import: {path} is not JSON ({error}); mend the file") from error
    try:
        step_S = np.array(content["xs"], np.float64)
        losses = np.array(content["ys"], np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"import: {path} needs numbers under 'xs' (S) and 'ys' (C, [R,] S[, 4]) ({error})"
        ) from error
    if losses.ndim == 4:  # training, then three kinds of validation and test losses
        losses = losses[..., 0]
    if losses.ndim == 2:
        losses = losses[:, None]
    if step_S.ndim != 1 or losses.ndim != 3 or losses.shape[2] != len(step_S):
        raise UserError(
            f"import: {path}: 'ys' has shape {losses.shape}, which does not end in 'xs' {step_S.shape}"
        )
    for number, replicas in enumerate(losses):
        for replica, loss_S in enumerate(replicas):
            curve = OutsideCurve(f"{number:04d}-{replica}")
            for place, (step, loss) in enumerate(zip(step_S.tolist(), loss_S.tolist(), strict=True)):
                curve.add(step, loss, f"{path}, ys[{number}][{replica}][{place}]")
            yield curve
