"""Allocate compute nodes among learning tasks of unknown length: the whole pipeline, or a stage alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mara_ray import __version__, pretrained, progress
from mara_ray.artifacts import read_json, written_whole
from mara_ray.config import load_config
from mara_ray.errors import MaraError, UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
curves_app = typer.Typer(no_args_is_help=True, help="Loss curves from real trainings.")
predictor_app = typer.Typer(no_args_is_help=True, help="The predictor of remaining demand.")
allocator_app = typer.Typer(no_args_is_help=True, help="The learned allocator.")
app.add_typer(curves_app, name="curves")
app.add_typer(predictor_app, name="predictor")
app.add_typer(allocator_app, name="allocator")

Preset = Annotated[str, typer.Option(help="A shipped preset, or the path of a YAML file.")]
Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="SECTION.FIELD=VALUE", default_factory=list, help="Override a value."),
]
Out = Annotated[Path | None, typer.Option(help="Run directory; runs/<name of the preset> if not given.")]
Force = Annotated[list[str], typer.Option(metavar="STAGE", default_factory=list, help="Do this stage again.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


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
    directory = _do("report", preset, set_, out, force)
    _show_evaluation(directory, as_json)
    progress.say(f"summary: {directory / 'summary.json'}")
    progress.say(f"report:  {directory / 'report.html'}")


@curves_app.command("generate")
def curves_generate(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Train the learning tasks and keep their loss curves."""
    directory = _do("curves", preset, set_, out, force)
    _show_path("bank", directory / "curves" / "bank.parquet", as_json)


@curves_app.command("import")
def curves_import(
    source: Annotated[Path, typer.Argument(help="A .csv, .parquet or .json file, or a folder of logs.")],
    out: Annotated[Path, typer.Option(help="The bank to write; it must not exist.")],
    scalar: Annotated[str | None, typer.Option(help="Name of the logged loss, if there are several.")] = None,
    name: Annotated[str, typer.Option(help="Configuration the curves count as.")] = "outside",
    set_name: Annotated[str, typer.Option("--set", help="id, rl or vit.")] = "id",
    points: Annotated[int, typer.Option(min=20, max=2000, help="Points of a curve in the bank.")] = 300,
    as_json: Json = False,
) -> None:
    """Bring curves from elsewhere to a bank: a long table, TensorBoard or W&B logs, or TaskSet's JSON."""
    from mara_ray.curves.importers import import_curves

    if out.exists():
        raise UserError(f"--out: {out} exists; choose another, or delete it")
    bank, said = import_curves(source, scalar, name, set_name, points)
    bank.write(out)
    progress.say(f"import: {said}")
    _show_path("bank", out, as_json)


@curves_app.command("show")
def curves_show(
    bank: Annotated[Path, typer.Argument(help="A bank's file, or `standard`, which ships.")] = Path(
        "standard"
    ),
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("curves.png"),
    as_json: Json = False,
) -> None:
    """Draw a bank's curves, and count them."""
    from mara_ray.curves.bank import CurveBank, located_bank
    from mara_ray.evaluation.bank_tables import bank_counts, bank_table
    from mara_ray.evaluation.curve_plots import sample_curves

    curves = CurveBank.read(located_bank(bank))
    with written_whole(out) as temporary:
        temporary.write_bytes(sample_curves(curves).png)
    counts = bank_counts(curves)
    if as_json:
        print(json.dumps({"configurations": counts, "picture": str(out)}))
        return
    Console().print(bank_table(counts))
    print(f"picture: {out}")


@predictor_app.command("train")
def predictor_train(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Train the flow-matching predictor on the bank's training curves."""
    directory = _do("predictor", preset, set_, out, force)
    _show_path("predictor", directory / "predictor", as_json)


@predictor_app.command("evaluate")
def predictor_evaluate(
    set_: Overrides,
    preset: Preset = "quick",
    out: Out = None,
    pretrained_: Annotated[
        bool, typer.Option("--pretrained", help="Those that ship, on the bank that ships.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare the predictors on test curves."""
    if pretrained_:
        from mara_ray.experiments.shipped import evaluate_shipped_predictors

        with progress.shown("predictors") as report_:
            evaluation = evaluate_shipped_predictors(report_)
    else:
        directory = _do("forecasts", preset, set_, out, [])
        evaluation = read_json(directory / "forecasts" / "evaluation.json")
    if as_json:
        print(json.dumps(evaluation))
        return
    from mara_ray.evaluation.tables import predictor_table

    Console().print(predictor_table(evaluation))


@predictor_app.command("forecast")
def predictor_forecast(
    source: Annotated[Path, typer.Argument(help="A .csv, .parquet or .json file, or a folder of logs.")],
    target: Annotated[float, typer.Option(help="The loss to reach.")],
    horizon: Annotated[float | None, typer.Option(help="Steps to look ahead; as many as were seen.")] = None,
    curve: Annotated[str | None, typer.Option(help="Name of the curve, if there are several.")] = None,
    scalar: Annotated[str | None, typer.Option(help="Name of the logged loss, if there are several.")] = None,
    predictor: Annotated[Path, typer.Option(help="A trained predictor's folder.")] = pretrained.PREDICTOR,
    plot: Annotated[Path, typer.Option(help="The picture to write.")] = Path("forecast.png"),
    as_json: Json = False,
) -> None:
    """Say when a training from elsewhere will meet a target loss, and draw its expected future."""
    from mara_ray.curves.importers import read_curves
    from mara_ray.evaluation.curve_plots import Fan, outside_fan
    from mara_ray.predictor.flow import FlowPredictor
    from mara_ray.predictor.outside import forecast_outside

    curves = {found.name: found for found in read_curves(source, scalar)}
    name = curve or next(iter(curves))
    if name not in curves or (curve is None and len(curves) > 1):
        raise UserError(f"--curve: {source} holds {', '.join(curves)}; choose one of them")
    found = forecast_outside(FlowPredictor.load(predictor), curves[name], target, horizon)
    fan = Fan(
        name, found.ema_L, found.num_seen, found.means_NH, found.first_step, found.step_width, found.target
    )
    with written_whole(plot) as temporary:
        temporary.write_bytes(outside_fan(fan))
    samples = found.remaining_steps_N.tolist()
    if as_json:
        answer = {
            "curve": name,
            "remaining_steps": samples,
            "horizon_steps": found.horizon_steps,
            "probability_within_horizon": found.probability,
            "plot": str(plot),
        }
        print(json.dumps(answer))
        return
    low, median, high = (samples[place] for place in (0, len(samples) // 2, -1))
    print(
        f"{name}: loss {target:g} in about {median:.4g} steps (samples {low:.4g} to {high:.4g}); within"
        f" {found.horizon_steps:.4g} steps with probability {found.probability:.2f}"
    )
    print(f"picture: {plot}")


@allocator_app.command("train")
def allocator_train(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Train the Multi-Agent Transformer policies by PPO."""
    directory = _do("allocator", preset, set_, out, force)
    _show_path("policies", directory / "allocator", as_json)


@app.command()
def evaluate(
    set_: Overrides,
    force: Force,
    preset: Preset = "quick",
    out: Out = None,
    methods: Annotated[
        str | None, typer.Option(help="Compare these, by name, with commas between; nothing else is trained.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare all methods on the same frozen episodes."""
    if methods is not None:
        from mara_ray.allocator.methods import overrides_for

        set_ = [*set_, *overrides_for(methods.split(","))]
    _show_evaluation(_do("report", preset, set_, out, force), as_json)


@app.command()
def report(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Write the self-contained report.html."""
    _show_path("report", _do("report", preset, set_, out, force) / "report.html", as_json)


@app.command()
def sweep(
    grid: Annotated[Path, typer.Argument(help="A YAML file as in tune_configs/.")],
    out: Annotated[Path | None, typer.Option(help="Results; runs/sweep-<its name> if not given.")] = None,
    num_cpus: Annotated[
        int | None, typer.Option(help="CPUs of a private Ray; all cores if not given.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the trials only.")] = False,
    as_json: Json = False,
) -> None:
    """Run a grid of trainings under Ray Tune; run again, it goes on where it was."""
    from mara_ray.experiments.ablation import read_ablation, run_ablation, trials_of

    ablation = read_ablation(grid)
    if dry_run:
        for trial in trials_of(ablation):
            print(f"{trial['setting']} = {trial['value']:g}")
        return
    directory = out or Path("runs") / f"sweep-{ablation.name}"
    rows = run_ablation(ablation, directory, num_cpus)
    print(rows.to_json(orient="records") if as_json else rows.round(3).to_string(index=False))
    progress.say(f"results: {directory / 'results.parquet'}")


@app.command()
def margins(
    set_: Overrides,
    preset: Preset = "quick",
    out: Out = None,
    methods: Annotated[str | None, typer.Option(help="Play these, by name, with commas between.")] = None,
    as_json: Json = False,
) -> None:
    """Play the frozen episodes with switching that costs and with unlike nodes."""
    from mara_ray.allocator.methods import overrides_for

    if methods is not None:
        names = methods.split(",")
        set_ = [*set_, *overrides_for(names if "lara" in names else [*names, "lara"])]
    directory = _do("allocator", preset, set_, out, [])
    from mara_ray.experiments.margins import play_margins
    from mara_ray.experiments.pipeline import Run

    with progress.shown("margins") as report_:
        folder = play_margins(Run(load_config(preset, set_), directory), report_)
    if as_json:
        print(json.dumps(read_json(folder / "margins.json")))
        return
    print(f"picture: {folder / 'margins.png'}")


@app.command()
def play(
    workload: Annotated[str, typer.Argument(help="stress, stress:SHARE, sample, or a trace's CSV file.")],
    set_: Overrides,
    preset: Preset = "quick",
    out: Out = None,
    methods: Annotated[str | None, typer.Option(help="Play these, by name, with commas between.")] = None,
    seconds_per_step: Annotated[float, typer.Option(help="Seconds of a trace that pass in a step.")] = 300.0,
    as_json: Json = False,
) -> None:
    """Play the stress test (13 of its 20 tasks are feasible), or a cluster's trace."""
    from mara_ray.allocator.methods import overrides_for

    if methods is not None:
        set_ = [*set_, *overrides_for(methods.split(","))]
    directory = _do("allocator", preset, set_, out, [])
    from mara_ray.experiments.pipeline import Run
    from mara_ray.experiments.playing import play_workload

    rows = play_workload(Run(load_config(preset, set_), directory), workload, seconds_per_step)
    means = rows.groupby("method", sort=False)[["completed", "tasks"]].mean()
    if as_json:
        print(means.to_json(orient="index"))
        return
    print(means.round(2).to_string())


@app.command()
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
    keys = ["least_fraction", "window"]
    print(rows.pivot(index=keys, columns=["load", "method"], values="completion").round(1).to_string())
    print(f"chosen: targets from {least:g} of the log-drop, windows of {window} steps")


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


def _do(stage: str, preset: str, overrides: list[str], out: Path | None, force: list[str]) -> Path:
    config = load_config(preset, overrides)
    directory = (out or Path("runs") / config.name).absolute()  # workers may stand elsewhere
    # Imported late: Ray and torch take seconds, and a mistyped key should be told at once.
    from mara_ray.experiments.pipeline import Run, run_stages
    from mara_ray.experiments.stages import STAGES, check_config

    check_config(config)
    ran = run_stages(Run(config, directory), STAGES, stage, tuple(force))
    if not ran:
        progress.say(f"{directory}: nothing to do, every stage is done (--force STAGE does one again)")
    return directory


def _show_path(name: str, path: Path, as_json: bool) -> None:
    print(json.dumps({name: str(path)}) if as_json else f"{name}: {path}")


def _show_evaluation(directory: Path, as_json: bool) -> None:
    summary = read_json(directory / "summary.json")
    if as_json:
        print(json.dumps(summary))
        return
    from mara_ray.evaluation.tables import completion_table

    Console().print(completion_table(summary))


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
    except KeyboardInterrupt:
        progress.say("interrupted; the same command goes on from here")
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        reason = str(error).strip().splitlines() or [""]
        progress.say(f"error: {type(error).__name__}: {reason[0]}; add --debug for the traceback")
        sys.exit(1)
