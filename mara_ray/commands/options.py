"""What commands share: their options, the stages they ask for, and how results are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from mara_ray import progress
from mara_ray.artifacts import read_json
from mara_ray.config import load_config

if TYPE_CHECKING:
    from mara_ray.experiments.run import Run

Preset = Annotated[str, typer.Option(help="A shipped preset, or the path of a YAML file.")]
Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="SECTION.FIELD=VALUE", default_factory=list, help="Override a value."),
]
Out = Annotated[
    str | None,
    typer.Option(help="Run directory, or the URI of a storage; runs/<name of the preset> if not given."),
]
Force = Annotated[list[str], typer.Option(metavar="STAGE", default_factory=list, help="Do this stage again.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Methods = Annotated[
    str | None,
    typer.Option(help="Take these methods, by name, with commas between; no others."),
]


SHIPPED = (  # settings under which nothing is trained
    "curves.bank=standard",
    "predictor.trained=standard",
    "allocator.trained=standard",
    "allocator.policies=[mara, mara_wls, mara_sparse]",
    "evaluation.methods=[mara, mara_wls, mara_sparse, planner, srpt, laira, lara_fm, lara, edf, fifo]",
    "evaluation.rivals=[]",
)


def do_stages(stage: str, preset: str, overrides: list[str], out: str | None, force: list[str]) -> Run:
    """Do the stages up to `stage` that are not done; the run."""
    config = load_config(preset, overrides)
    # Imported late: Ray and torch take seconds, and a mistyped key should be told at once.
    from mara_ray.experiments.checks import check_config
    from mara_ray.experiments.pipeline import run_stages
    from mara_ray.experiments.run import run_at
    from mara_ray.experiments.stages import STAGES

    check_config(config)
    run = run_at(config, out or f"runs/{config.name}")
    if not run_stages(run, STAGES, stage, tuple(force)):
        progress.say(f"{run.place}: nothing to do, every stage is done (--force STAGE does one again)")
    return run


def show_path(name: str, path: Path | str, as_json: bool) -> None:
    """Say where something is."""
    print(json.dumps({name: str(path)}) if as_json else f"{name}: {path}")


def show_evaluation(run: Run, as_json: bool) -> None:
    """Print the table of a run that is done."""
    summary = read_json(run.directory / "summary.json")
    if as_json:
        print(json.dumps(summary))
        return
    from mara_ray.evaluation.tables import completion_table

    Console().print(completion_table(summary))


def with_methods(overrides: list[str], methods: str | None) -> list[str]:
    """The overrides, and those under which only these methods are compared."""
    from mara_ray.allocator.methods import overrides_for

    return overrides if methods is None else [*overrides, *overrides_for(methods.split(","))]
