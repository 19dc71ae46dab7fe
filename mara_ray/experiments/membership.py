"""A run as the cell of a sweep: where it keeps what it shares, and how it is logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mara_ray.artifacts import read_json
from mara_ray.errors import UserError
from mara_ray.experiments.tracking import Place

RECORD_FILE = "record.json"  # of a shared stage, as in a manifest


@dataclass(frozen=True)
class Membership:
    """A run's place in a sweep.

    Attributes:
        sweep: its name.
        name: of the run, a cell of the sweep.
        stages: the folder in which stages are shared.
        tracking: where they are logged.
        groups: W&B group of each stage: the cell, or what stands for all that share it.
        factors: what the run varies, by name.
    """

    sweep: str
    name: str
    stages: Path
    tracking: Path
    groups: Mapping[str, str]
    factors: Mapping[str, Any] = field(default_factory=dict)

    def folder(self, stage: str, inputs: str) -> Path:
        """Where a stage that is made from these inputs lies."""
        return shared_folder(self.stages, stage, inputs)

    def place(self, stage: str, inputs: str) -> Place:
        """Where and under which names a stage is logged."""
        group = self.groups[stage]
        if group == self.name:
            factors, board = self.factors, f"{group}/{stage}"
        else:
            factors, board = {}, f"{group}/{stage}-{inputs[:6]}"
        name = f"{self.sweep}-{board}".replace("/", "-")
        return Place(self.tracking, f"{self.sweep}/{group}", board, name, factors)


def shared_folder(stages: Path, stage: str, inputs: str) -> Path:
    """Where the runs of a sweep keep a stage, below their folder of stages."""
    return stages / f"{stage}.{inputs}"


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a shared stage; None without one that is whole, so that the stage is done again."""
    try:
        record = read_json(path)
    except UserError:
        return None
    whole = isinstance(record, dict) and {"inputs", "outputs", "wall_s"} <= record.keys()
    return record if whole else None
