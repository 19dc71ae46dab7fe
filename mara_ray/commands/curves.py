"""mara curves: loss curves from real trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mara_ray import progress
from mara_ray.artifacts import written_whole
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

curves_app = typer.Typer(no_args_is_help=True, help="Loss curves from real trainings.")


@curves_app.command("generate")
def curves_generate(
    set_: Overrides, force: Force, preset: Preset = "quick", out: Out = None, as_json: Json = False
) -> None:
    """Train the learning tasks and keep their loss curves."""
    run = do_stages("curves", preset, set_, out, force)
    show_path("bank", f"{run.place}/curves/bank.parquet", as_json)


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
    show_path("bank", out, as_json)


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
