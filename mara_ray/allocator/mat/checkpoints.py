"""Checkpoints of a training, and its metrics file: what a killed training goes on from.

A policy's directory holds
  checkpoints/<update>/   RLlib's checkpoint, the progress so far, and the best weights so far,
  best.safetensors        the best weights so far,
  metrics.jsonl           one line an update, line 0 being the untrained policy.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mara_ray.artifacts import read_json, write_json, written_whole

BEST_FILE, METRICS_FILE, PROGRESS_FILE = "best.safetensors", "metrics.jsonl", "progress.json"


@dataclass(frozen=True)
class Progress:
    """How far a training has come: the update reached, the best validation, and CPU seconds so far."""

    update: int
    best_update: int
    best_completion: float
    cpu_s: float


def write_checkpoint(algorithm: Any, progress: Progress, directory: Path) -> None:
    """Write a whole checkpoint of RLlib's `algorithm`, then remove those before it."""
    path = directory / "checkpoints" / f"{progress.update:06d}"
    with written_whole(path) as temporary:
        algorithm.save_to_path(temporary / "algorithm")
        shutil.copy(directory / BEST_FILE, temporary / BEST_FILE)
        write_json(temporary / PROGRESS_FILE, asdict(progress))
    for older in path.parent.iterdir():
        if older != path:
            shutil.rmtree(older, ignore_errors=True)


def last_checkpoint(directory: Path) -> tuple[Path, Progress] | None:
    """The latest checkpoint of a training, if there is one."""
    whole = sorted((directory / "checkpoints").glob("[0-9]" * 6))
    return (whole[-1], Progress(**read_json(whole[-1] / PROGRESS_FILE))) if whole else None


def restore_checkpoint(algorithm: Any, directory: Path) -> Progress | None:
    """Take `algorithm` and the directory's files back to the latest checkpoint, if there is one."""
    last = last_checkpoint(directory)
    if last is None:
        return None
    path, progress = last
    algorithm.restore_from_path(path / "algorithm")
    shutil.copy(path / BEST_FILE, directory / BEST_FILE)
    lines = (directory / METRICS_FILE).read_text().splitlines()[: progress.update + 1]
    with written_whole(directory / METRICS_FILE) as temporary:
        temporary.write_text("".join(line + "\n" for line in lines))
    return progress


def append_metrics(directory: Path, values: dict[str, Any]) -> None:
    """Add a line to the metrics file; step 0 starts it anew."""
    with open(directory / METRICS_FILE, "a" if values["step"] else "w") as file:
        file.write(json.dumps(values, sort_keys=True) + "\n")
