"""mara predictor: training it, judging it, and asking it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mara_ray import pretrained, progress
from mara_ray.artifacts import read_json, written_whole
from mara_ray.commands.options import (
    Force,
    Json,
    Out,
    Overrides,
    Preset,
    do_stages,
    show_path,
)
from mara_ray.errors import UserError

predictor_app = typer.Typer(no_args_is_help=True, help="The predictor of remaining demand.")


@predictor_app.command("train")
def predictor_train(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Train the flow-matching predictor on the bank's training curves."""
    run = do_stages("predictor", preset, set_, out, force)
    show_path("predictor", f"{run.place}/predictor", as_json)


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
        run = do_stages("forecasts", preset, set_, out, [])
        evaluation = read_json(run.folder("forecasts") / "evaluation.json")
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
    flow = FlowPredictor.load(predictor)
    found = forecast_outside(flow, curves[name], target, horizon)
    fan = Fan(
        name,
        found.ema_L,
        found.num_seen,
        found.means_NH,
        found.first_step,
        found.step_width,
        found.target,
        flow.shape.last_bin_ratio,
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
