"""What a sweep is made of: a YAML file of `tune_configs`, read into cells, each a whole run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from mara_ray.artifacts import hash_of
from mara_ray.config import Positive, RunConfig, Section, load_config
from mara_ray.errors import UserError
from mara_ray.mappings import read_mapping
from mara_ray.predictor.scoring import MEASURES

COLUMNS = (  # of results; no axis may be called so
    "sweep", "cell", "workload", "method", "predictor", "set", "load", "root", "training_seed", "episode",
    "tasks", "completed", "full_queue_fraction", "waiting_tasks", "readiness_delay", "switches", "migrations",
    "wasted_service", "utilisation", "proven", "completion", "low", "high", "lead", "lead_low", "lead_high",
    *MEASURES, "mae_reduction_percent", "mae_reduction_low", "mae_reduction_high", "success_gain_points",
    "success_gain_low", "success_gain_high",
)  # fmt: skip
SAMPLER_SETTINGS = {"num_samples", "euler_steps", "warmup_points"}  # that an ablation tries without training
NOT_VARIED = ("name", "cluster", "tracking")  # belong to the sweep, not to a cell
NAME = r"^[A-Za-z0-9_.-]+$"
MAX_NAME = 80
BASE = "base"  # of a cell that changes nothing


class Grid(Section):
    """Cells that are runs: each goes through the stages of `mara run`, and shares what others need, too."""

    kind: Literal["evaluation", "forecasts", "play"] = Field(
        "evaluation",
        description="rows are episodes of the frozen comparison, predictors' errors, or episodes of `plays`",
    )
    name: Annotated[str, Field(pattern=NAME)] = Field(description="of the results")
    about: str = Field(description="which table or figure it makes")
    preset: str = Field(description="where settings come from that are not named here")
    settings: dict[str, Any] = Field({}, description="values of all cells, by dotted path")
    axes: dict[str, list[Any] | dict[str, dict[str, Any]]] = Field(
        {},
        description="what cells differ in: values of a dotted path, or labels of settings by dotted path",
    )
    vary: Literal["together", "alone"] = Field(
        "together", description="every combination of values, or one change at a time from the settings"
    )
    plays: tuple[str, ...] = Field(
        (), description="of the kind `play`: stress, stress:SHARE, sample, or a trace's CSV file"
    )

    @field_validator("axes", mode="before")
    @classmethod
    def _shaped(cls, axes: Any) -> Any:
        for name, values in axes.items() if isinstance(axes, dict) else ():
            if not isinstance(values, list | dict):
                raise ValueError(f"{name!r} must be a list of values or a mapping of labels, not {values!r}")
            for label, settings in values.items() if isinstance(values, dict) else ():
                if not isinstance(label, str):
                    raise ValueError(f"the label {label!r} of {name!r} must be text; put it in quotes")
                if not isinstance(settings, dict):
                    raise ValueError(f"{label!r} of {name!r} must be a mapping of settings, not {settings!r}")
        return axes

    @field_validator("axes")
    @classmethod
    def _known(cls, axes: dict[str, Any]) -> dict[str, Any]:
        for name, values in axes.items():
            if name in COLUMNS or name.split(".")[0] in NOT_VARIED:
                raise ValueError(f"{name!r} cannot be an axis; call it otherwise")
            if not values:
                raise ValueError(f"{name!r} has no values")
        return axes


class Ablation(Section):
    """Trainings of the predictor, one change at a time, judged on validation curves."""

    kind: Literal["predictor_ablation"]
    name: Annotated[str, Field(pattern=NAME)] = Field(description="of the results")
    about: str = Field(description="which table or figure it makes")
    preset: str = Field(description="where the settings come from that are not varied")
    epochs: Positive = Field(description="of every training")
    bank: Path = Field(Path("standard"), description="curves, as in curves.bank")
    sampler: dict[str, list[int]] = Field(description="values of settings that need no training")
    training: dict[str, list[float]] = Field(description="values of settings that do")
    train_curves: list[Positive] = Field(description="sizes of the training bank; all is tried anyway")

    @field_validator("sampler")
    @classmethod
    def _of_the_sampler(cls, sampler: dict[str, Any]) -> dict[str, Any]:
        if unknown := sampler.keys() - SAMPLER_SETTINGS:
            raise ValueError(f"{min(unknown)!r} is none of {', '.join(sorted(SAMPLER_SETTINGS))}")
        return sampler


SWEEPS: TypeAdapter[Grid | Ablation] = TypeAdapter(Annotated[Grid | Ablation, Field(discriminator="kind")])


@dataclass(frozen=True)
class Cell:
    """One cell: its name, its value on every axis, and the configuration of its run."""

    name: str
    factors: Mapping[str, Any]
    config: RunConfig


def read_sweep(path: Path) -> Grid | Ablation:
    """Read and check a sweep.

    Raises:
        UserError: the file is missing, no YAML, or not such a sweep.
    """
    tree = read_mapping(path, "sweep", "there are some in tune_configs/")
    try:
        return SWEEPS.validate_python({"kind": "evaluation", **tree})
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"][1:]) or "kind"
        message = problem["msg"].removeprefix("Value error, ")
        raise UserError(f"sweep: {path}: {place}: {message[0].lower()}{message[1:]}; mend it") from error


def cells_of(grid: Grid, overrides: list[str] | tuple[str, ...] = ()) -> list[Cell]:
    """The cells of a grid; two that come to the same configuration are one.

    Args:
        grid: the sweep.
        overrides: settings `a.b=c` of all cells, over those of the grid.

    Raises:
        UserError: an unknown key or a bad value, or an override of what is varied.
    """
    varied = {*grid.axes}
    for values in grid.axes.values():
        if isinstance(values, dict):
            varied |= {path for changes in values.values() for path in changes}
    for override in overrides:
        if (path := override.partition("=")[0]) in varied:
            raise UserError(f"--set: {path!r} is what the sweep varies; change it in the file")
    common = [*map(_assignment, grid.settings.items()), *overrides]
    configs: dict[str, RunConfig] = {}
    factors: dict[str, dict[str, Any]] = {}
    for labels in _combinations(grid):
        changes = [
            _assignment(item)
            for axis, label in labels.items()
            for item in _changes(grid, axis, label).items()
        ]
        config = load_config(grid.preset, [*common, *changes])
        key = hash_of(config.model_dump(mode="json"))
        configs.setdefault(key, config)
        known = factors.setdefault(key, {axis: BASE for axis in grid.axes})
        for axis, values in grid.axes.items():
            if isinstance(values, list):
                known[axis] = _value(config, axis)
            elif axis in labels:
                known[axis] = labels[axis]
    return _named(grid, configs, factors)


def _named(
    grid: Grid, configs: Mapping[str, RunConfig], factors: Mapping[str, Mapping[str, Any]]
) -> list[Cell]:
    """Cells with names for files and W&B groups: `switch_cost_steps=2,...`, all or where they change."""
    cells: dict[str, Cell] = {}
    base = next(iter(factors.values()))
    for key, config in configs.items():
        own = {axis: base[axis] if value == BASE else value for axis, value in factors[key].items()}
        told = own
        if grid.vary == "alone":
            told = {axis: value for axis, value in own.items() if value != base[axis]}
        text = ",".join(f"{axis.rpartition('.')[2]}={value}" for axis, value in told.items())
        name = re.sub(r"[^A-Za-z0-9_.=,-]+", "-", re.sub(r"[\[\]{}\"]", "", text)) or BASE
        if len(name) > MAX_NAME or name in cells:
            name = f"{name[:MAX_NAME]}-{key[:6]}"
        cells[name] = Cell(name, own, config)
    return list(cells.values())


def _combinations(grid: Grid) -> Iterator[dict[str, Any]]:
    """A value, or label, for each axis that is changed."""
    if grid.vary == "together":
        for values in itertools.product(*grid.axes.values()):
            yield dict(zip(grid.axes, values, strict=True))
        return
    yield {}
    for axis, of_axis in grid.axes.items():
        yield from ({axis: value} for value in of_axis)


def _changes(grid: Grid, axis: str, label: Any) -> dict[str, Any]:
    values = grid.axes[axis]
    return values[label] if isinstance(values, dict) else {axis: label}


def _value(config: RunConfig, path: str) -> Any:
    """The value at a dotted path; as JSON text if it is no scalar."""
    value: Any = config.model_dump(mode="json")
    for part in path.split("."):
        value = value[part]
    return value if isinstance(value, str | int | float) else json.dumps(value)


def _assignment(item: tuple[str, Any]) -> str:
    return f"{item[0]}={json.dumps(item[1])}"  # YAML reads JSON
