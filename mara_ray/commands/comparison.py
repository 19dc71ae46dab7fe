"""mara evaluate, play and calibrate: methods against each other; mara benchmark: speeds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mara_ray import progress
from mara_ray.commands.options import (
    SHIPPED,
    Force,
    Json,
    Methods,
    Out,
    Overrides,
    Preset,
    do_stages,
    show_evaluation,
    with_methods,
)
from mara_ray.config import load_config

comparison_app = typer.Typer()

Pretrained = Annotated[
    bool, typer.Option("--pretrained", help="Bank, predictor and policies that ship, on the standard preset.")
]


@comparison_app.command()
def evaluate(
    set_: Overrides,
    force: Force,
    preset: Preset = "quick",
    out: Out = None,
    methods: Methods = None,
    pretrained_: Pretrained = False,
    as_json: Json = False,
) -> None:
    """Compare all methods on the same frozen episodes."""
    if pretrained_:
        preset, set_, out = _shipped(set_, out)
    set_ = with_methods(set_, methods)
    show_evaluation(do_stages("report", preset, set_, out, force), as_json)


@comparison_app.command()
def play(
    workload: Annotated[str, typer.Argument(help="stress, stress:SHARE, sample, or a trace's CSV file.")],
    set_: Overrides,
    preset: Preset = "quick",
    out: Out = None,
    methods: Methods = None,
    seconds_per_step: Annotated[float, typer.Option(help="Seconds of a trace that pass in a step.")] = 300.0,
    pretrained_: Pretrained = False,
    as_json: Json = False,
) -> None:
    """Play the stress test (13 of its 20 tasks are feasible), or a cluster's trace."""
    if pretrained_:
        preset, set_, out = _shipped(set_, out)
    set_ = with_methods(set_, methods)
    run = do_stages("allocator", preset, set_, out, [])
    from mara_ray.experiments.playing import play_workload

    rows = play_workload(run, workload, seconds_per_step)
    means = rows.groupby("method", sort=False).agg(
        completed=("completed", "mean"), lowest=("completed", "min"), tasks=("tasks", "mean")
    )
    if as_json:
        print(means.to_json(orient="index"))
        return
    print(means.round(2).to_string())


@comparison_app.command()
def calibrate(set_: Overrides, preset: Preset = "standard", as_json: Json = False) -> None:
    """Find how tight deadlines and targets should be, with FIFO, EDF and LARA on curves of no test."""
    from mara_ray.curves.bank import CurveBank, located_bank
    from mara_ray.experiments.calibration import choose, play_settings

    config = load_config(preset, set_)
    bank = CurveBank.read(located_bank(config.curves.bank or Path("standard")))
    with progress.shown("settings") as report_:
        rows = play_settings(config, bank, report_)
    least, window = choose(rows)
    if as_json:
        print(json.dumps({"least_fraction": least, "window_steps": window, "rows": rows.to_dict("records")}))
        return
    print(rows.round(2).to_string(index=False))
    print(f"chosen: targets from {least:g} of the log-drop, windows of {window} steps")


@comparison_app.command()
def benchmark(set_: Overrides, preset: Preset = "standard", as_json: Json = False) -> None:
    """Measure what RLlib adds to sampling and to learning, on the bank that ships."""
    from mara_ray.experiments.benchmark import SETTING, measure_shipped

    with progress.shown("benchmark") as report_:
        measured = asdict(measure_shipped(load_config(preset, [*SETTING, *set_]), report=report_))
    if as_json:
        print(json.dumps(measured))
        return
    for name, value in measured.items():
        print(f"{name:<38} {value:>12,.2f}")


def _shipped(overrides: list[str], out: str | None) -> tuple[str, list[str], str]:
    """Preset, overrides and run directory with which nothing is trained."""
    return "standard", [*SHIPPED, *overrides], out or "runs/pretrained"
