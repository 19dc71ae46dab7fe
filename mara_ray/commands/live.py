"""mara schedule, overhead and live-margin: the allocators over real trainings, and what that costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mara_ray import progress
from mara_ray.commands.options import Json, Overrides, Preset
from mara_ray.config import ClusterConfig

live_app = typer.Typer()

Policies = Annotated[Path, typer.Option(help="`allocator/` of a run, or one policy's folder.")]
Address = Annotated[str | None, typer.Option(help="Ray address; a private Ray if not given.")]


@live_app.command()
def schedule(
    jobs: Annotated[Path, typer.Argument(help="A YAML file as examples/jobs.yaml.")],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes: jobs that train at a time.")] = 4,
    slots: Annotated[int | None, typer.Option(min=1, help="Jobs that the allocator sees; 2 a node.")] = None,
    allocator: Annotated[
        str, typer.Option(help="mara, laira, lara, lara_fm, edf, fifo, planner ...")
    ] = "mara",
    policies: Annotated[Path, typer.Option(help="`allocator/` of a run, or one policy's folder.")] = Path(
        "standard"
    ),
    predictor: Annotated[Path, typer.Option(help="A trained predictor's folder.")] = Path("standard"),
    out: Annotated[Path | None, typer.Option(help="Results; runs/schedule-<name of the file>.")] = None,
    address: Address = None,
    cpus_per_node: Annotated[
        float | None, typer.Option(min=0, help="CPUs of a node; a share of all.")
    ] = None,
    gpus_per_node: Annotated[float, typer.Option(min=0, help="GPUs, or a fraction of one, of a node.")] = 0.0,
    report: Annotated[bool, typer.Option("--report", help="Draw gantt.png.")] = False,
    as_json: Json = False,
) -> None:
    """Train jobs of your own under deadlines; run again, it goes on where it was."""
    from mara_ray.live.jobs import read_jobs

    asked = read_jobs(jobs)  # before Ray and torch are imported: what is wrong should be told at once
    from mara_ray.live.method import live_method
    from mara_ray.live.run import Place, run_jobs

    method = live_method(allocator, predictor, policies)
    folder = (out or Path("runs") / f"schedule-{jobs.stem}").absolute()
    place = Place(nodes, slots or max(8, 2 * nodes), cpus_per_node, gpus_per_node)
    outcome = run_jobs(asked, method, ClusterConfig(address=address), place, folder, report)
    if as_json:
        print(json.dumps(outcome))
    else:
        table = Table("job", "", "arrival", "deadline", "finished", "blocks", "loss", "target")
        for job in outcome["jobs"]:
            cells = [job[key] for key in ("name", "status", "arrival", "deadline", "finished", "blocks")]
            losses = [f"{job[key]:.3g}" if job[key] is not None else "" for key in ("loss", "target")]
            table.add_row(*("" if cell is None else str(cell) for cell in cells), *losses)
        Console().print(table)
        print(f"{outcome['met']} of {outcome['of']} jobs met their targets in time")
    progress.say(f"results: {folder}")


@live_app.command()
def overhead(as_json: Json = False) -> None:
    """Measure what live scheduling costs: pausing, resuming and moving by state size, and the controller."""
    import contextlib
    import sys
    import tempfile

    from mara_ray.experiments.cluster import connect
    from mara_ray.live.method import live_method
    from mara_ray.live.overhead import STATE_BYTES, controller_milliseconds, switching_seconds
    from mara_ray.live.tune_pause import tune_switch_seconds

    with (
        tempfile.TemporaryDirectory() as temporary,
        progress.shown("overhead") as report_,
        contextlib.redirect_stdout(sys.stderr),  # Tune talks
    ):
        folder = Path(temporary)
        method = live_method("lara_fm", Path("standard"), Path("standard"))
        controller = {
            f"M={num_nodes}": controller_milliseconds(method, num_nodes, folder / str(num_nodes))
            for num_nodes in (4, 64)
        }
        connect(ClusterConfig())
        measured = {
            "controller": controller,
            "switching": switching_seconds(folder, report_),
            "tune_switch_s": {
                size: {
                    name: tune_switch_seconds(num_bytes, name == "same actor", folder / "tune")
                    for name in ("same actor", "new actor")
                }
                for size, num_bytes in STATE_BYTES.items()
            },
        }
    print(json.dumps(measured, indent=None if as_json else 2))


@live_app.command("live-margin")
def live_margin(
    set_: Overrides,
    preset: Preset = "standard",
    methods: Annotated[
        str, typer.Option(help="Two methods: the lead of the first over the second.")
    ] = "mara,lara",
    policies: Policies = Path("standard"),
    workloads: Annotated[int, typer.Option(min=1, help="Workloads played.")] = 3,
    out: Annotated[Path, typer.Option(help="Results; run again, it goes on.")] = Path("runs/live-margin"),
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Play workloads of real trainings in wall-clock time, and the same in the simulator."""
    from mara_ray.config import load_config
    from mara_ray.live.margin import measure_margin

    config, cluster = load_config(preset, set_), ClusterConfig(address=address)
    names = tuple(name.strip() for name in methods.split(","))
    measured = measure_margin(config, names, policies, workloads, cluster, out.absolute())
    print(json.dumps(measured, indent=None if as_json else 2))
