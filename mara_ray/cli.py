"""Allocate compute nodes among learning tasks of unknown length: the whole pipeline, or a stage alone."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from mara_ray import __version__, progress
from mara_ray.commands.comparison import comparison_app
from mara_ray.commands.curves import curves_app
from mara_ray.commands.dashboards import dashboards_app
from mara_ray.commands.live import live_app
from mara_ray.commands.options import (
    Force,
    Json,
    Out,
    Overrides,
    Preset,
    do_stages,
    show_evaluation,
    show_path,
)
from mara_ray.commands.predictor import predictor_app
from mara_ray.commands.results import results_app
from mara_ray.commands.sweep import sweep_app
from mara_ray.config import load_config
from mara_ray.errors import MaraError

INTERRUPTED = 130  # the code that typer gives to Ctrl-C
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
allocator_app = typer.Typer(no_args_is_help=True, help="The learned allocator.")
app.add_typer(comparison_app)
app.add_typer(sweep_app)
app.add_typer(results_app)
app.add_typer(dashboards_app)
app.add_typer(live_app)
app.add_typer(curves_app, name="curves")
app.add_typer(predictor_app, name="predictor")
app.add_typer(allocator_app, name="allocator")


@app.callback(invoke_without_command=True)
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"mara_ray {__version__}")
        raise typer.Exit


@app.command()
def run(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Do every stage that is not done; end in report.html and summary.json."""
    done = do_stages("report", preset, set_, out, force)
    show_evaluation(done, as_json)
    progress.say(f"summary: {done.place}/summary.json")
    progress.say(f"report:  {done.place}/report.html")


@allocator_app.command("train")
def allocator_train(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Train the Multi-Agent Transformer policies by PPO."""
    done = do_stages("allocator", preset, set_, out, force)
    show_path("policies", f"{done.place}/allocator", as_json)


@app.command()
def doctor(set_: Overrides, preset: Preset = "quick", as_json: Json = False) -> None:
    """Print versions, cores, GPUs, Ray, W&B mode, and which data are there."""
    from mara_ray.experiments.doctor import diagnose

    config = load_config(preset, set_)
    diagnosis = diagnose(config.cluster, config.tracking, config.curves.data_folder)
    if as_json:
        print(json.dumps(diagnosis))
        return
    for name, value in diagnosis.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, entry in value.items():
                print(f"  {key:<20} {entry}")
        else:
            print(f"{name:<22} {value}")


def main() -> None:
    """Entry point: exit code 1 for the machine's faults, 2 for the user's; a traceback only with --debug."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]  # it may stand anywhere
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(arguments)
    except MaraError as error:
        if debug:
            raise
        progress.say(f"error: {error}")
        sys.exit(error.exit_code)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            progress.say("interrupted; the same command goes on from here")
        raise
    except Exception as error:
        if debug:
            raise
        reason = str(error).strip().splitlines() or [""]
        progress.say(f"error: {type(error).__name__}: {reason[0]}; add --debug for the traceback")
        sys.exit(1)
