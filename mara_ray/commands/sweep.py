"""mara sweep: every table and figure as a grid under Ray Tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from mara_ray import progress
from mara_ray.artifacts import written_whole
from mara_ray.commands.options import Json, Overrides
from mara_ray.config import load_config
from mara_ray.errors import UserError
from mara_ray.experiments.grid import Ablation, Grid, read_sweep
from mara_ray.results import RESULTS_FILE
from mara_ray.storage import is_uri

if TYPE_CHECKING:
    import pandas as pd

    from mara_ray.experiments.sweep import Sweep

sweep_app = typer.Typer()


@sweep_app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A YAML file as in tune_configs/.")],
    set_: Overrides,
    out: Annotated[str | None, typer.Option(help="Results; runs/sweep-<its name> if not given.")] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            help="Keep stages here, for other sweeps, too; in the results' folder if not given. (An ablation"
            " of the predictor has none.)"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List trials, what they share and need, and the time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run every cell of a grid under Ray Tune; run again, it goes on where it was."""
    grid = read_sweep(file)
    if out is not None and is_uri(out):
        raise UserError(f"--out: {out} is a URI; a sweep needs a directory that all its nodes see")
    if stages is not None and (is_uri(stages) or (Path(stages).exists() and not Path(stages).is_dir())):
        raise UserError(f"--stages: {stages} is no directory; a sweep needs one that all its nodes see")
    directory = Path(out or f"runs/sweep-{grid.name}").absolute()
    if isinstance(grid, Ablation):
        rows = _ablation(grid, set_, directory, dry_run)
    else:
        rows = _grid(grid, set_, directory, None if stages is None else Path(stages), dry_run)
    if rows is None:
        return
    if as_json:
        print(rows.to_json(orient="records"))
    elif isinstance(grid, Grid) and grid.kind != "forecasts":
        _show(rows, list(grid.axes))
    else:
        print(rows.round(3).to_string(index=False))
    progress.say(f"results: {directory / RESULTS_FILE}")


def _ablation(ablation: Ablation, set_: list[str], directory: Path, dry_run: bool) -> pd.DataFrame | None:
    from mara_ray.experiments.ablation import run_ablation, trials_of

    config = load_config(ablation.preset, set_)
    if dry_run:
        print(f"{ablation.name}: {ablation.about}")
        for trial in trials_of(ablation, config):
            print(f"  {trial['name']}: 1 CPU")
        return None
    with progress.shown(ablation.name) as report:
        return run_ablation(ablation, config, directory, report)


def _grid(
    grid: Grid, set_: list[str], directory: Path, stages: Path | None, dry_run: bool
) -> pd.DataFrame | None:
    from mara_ray.evaluation.lead_plots import lead_figure
    from mara_ray.evaluation.leads import leads_of
    from mara_ray.experiments.sweep import Sweep, preflight, run_sweep

    planned = Sweep.of(grid, set_, directory, stages)
    if dry_run:
        _list(planned, preflight(planned)["CPU"])
        return None
    with progress.shown(grid.name) as report:
        rows = run_sweep(planned, report)
    if grid.kind == "forecasts":
        return rows
    leads = leads_of(rows, rows.attrs["resamples"], rows.attrs["seed"])
    (directory / "leads.png").unlink(missing_ok=True)
    if picture := lead_figure(leads, rows.attrs["axes"]):
        with written_whole(directory / "leads.png") as temporary:
            temporary.write_bytes(picture.png)
        progress.say(f"picture: {directory / 'leads.png'}")
    return leads


def _list(sweep: Sweep, num_cpus: float) -> None:
    """What a sweep would do."""
    plan = sweep.plan
    print(f"{sweep.grid.name}: {sweep.grid.about}")
    print(f"{len(sweep.cells)} trials; each holds 400 MB; its stages take CPUs and GPUs as they come:")
    for cell in sweep.cells:
        own = [stage for stage, group in plan.groups(cell.name).items() if group == cell.name]
        print(f"  {cell.name}: {', '.join(own) or 'nothing'} of its own")
    print("each stage once, with what it needs at once, and seconds of one core (or those it took):")
    for work in plan.works.values():
        needs = ", ".join(f"{amount:g} {name}" for name, amount in work.request.items() if amount)
        seconds = (
            f"done in {work.measured_s:.0f} s"
            if work.measured_s is not None
            else f"~{work.core_seconds:.0f} s"
        )
        users = work.cells[0] if len(work.cells) == 1 else f"{len(work.cells)} cells"
        print(f"  {work.stage.name:<11} {needs:<16} {seconds:<16} {'trains, ' * work.trains}for {users}")
    if not any(work.trains for work in plan.works.values()):
        print("nothing is trained")
    minutes = plan.left_s(num_cpus) / 60
    measured = any(work.measured_s for work in plan.works.values())
    basis = "times of the stages done here" if measured else "costs stated for a laptop's core"
    print(f"estimate: {minutes:.1f} min on {num_cpus:g} CPUs, from {basis}")


def _show(leads: pd.DataFrame, axes: list[str]) -> None:
    """A table for each cell, workload and load: completion on every set, and the lead over LARA."""
    from mara_ray.evaluation.tables import BOUNDS, REFERENCE, cell, label

    print("Tasks finished on time, in %; lead over LARA in points, mean over the sets (bounds: see --json)")
    keys = [name for name in (*axes, "workload", "load") if name in leads and leads[name].nunique() > 1]
    methods = leads[~leads["method"].isin(BOUNDS)]
    for place, part in methods.groupby(keys, sort=False) if keys else [((), methods)]:
        shown = [f"{key.rpartition('.')[2]} {value}" for key, value in zip(keys, place, strict=True)]
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=", ".join(shown), title_justify="left")
        for name in ("method", *part["set"].unique(), "lead"):
            table.add_column(label(name), justify="left" if name == "method" else "right", no_wrap=True)
        for method, by_set in part.groupby("method", sort=False):
            cells = [
                cell(f"{row['completion']:.1f}", (row["low"], row["high"]))
                for row in by_set.to_dict("records")
            ]
            mean = by_set.iloc[-1]
            if "lead" in by_set and method != REFERENCE:
                cells.append(cell(f"{mean['lead']:+.1f}", (mean["lead_low"], mean["lead_high"])))
            table.add_row(label(str(method)), *cells)
        Console().print(table)
