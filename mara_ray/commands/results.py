"""mara report, gantt and docs: what runs and sweeps came to, as pages and pictures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mara_ray import progress
from mara_ray.artifacts import written_whole
from mara_ray.commands.options import Json, show_path
from mara_ray.errors import UserError

results_app = typer.Typer()
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run.")]


@results_app.command()
def report(
    directory: RunDirectory,
    sweep: Annotated[
        list[Path],
        typer.Option(metavar="DIR", default_factory=list, help="Show a sweep's leads beside the run."),
    ],
    as_json: Json = False,
) -> None:
    """Write summary.json and the self-contained report.html of a run anew."""
    from mara_ray.evaluation.run_results import SweepResults
    from mara_ray.experiments.pipeline import run_stages
    from mara_ray.experiments.reporting import finished_run, write_summary_and_report
    from mara_ray.experiments.stages import STAGES

    run, shown = finished_run(directory), [SweepResults.read(path) for path in sweep]
    stage = replace(STAGES[-1], work=partial(write_summary_and_report, sweeps=shown))
    run_stages(run, (stage,), stage.name, (stage.name,))
    show_path("report", run.directory / "report.html", as_json)


@results_app.command()
def gantt(
    directory: RunDirectory,
    methods: Annotated[str, typer.Option(help="Two methods, by name, with a comma between.")] = "mara,lara",
    set_name: Annotated[str, typer.Option(help="id, rl or vit.")] = "id",
    load: Annotated[float | None, typer.Option(help="Arrival rate; the run's first if not given.")] = None,
    root: Annotated[int, typer.Option(min=0, help="Workload root.")] = 0,
    episode: Annotated[int, typer.Option(min=0, help="Episode of that root.")] = 0,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("gantt.png"),
    as_json: Json = False,
) -> None:
    """Draw one episode of a finished run, step by step, under two methods."""
    names = [name.strip() for name in methods.split(",")]
    if len(set(names)) != 2 or len(names) != 2:
        raise UserError(f"--methods: {methods!r} are not two methods; name two, as in mara,lara")
    from mara_ray.experiments.comparison import Arena, Cell
    from mara_ray.experiments.pictures import draw_episode
    from mara_ray.experiments.reporting import finished_run

    run = finished_run(directory)
    cell = Cell(set_name, run.config.evaluation.loads[0] if load is None else load, root)
    picture = draw_episode(Arena.load(run), names, cell, episode)
    with written_whole(out) as temporary:
        temporary.write_bytes(picture.png)
    progress.say(picture.alt)
    show_path("picture", out, as_json)


@results_app.command()
def docs(
    finished: Annotated[
        list[Path],
        typer.Argument(
            metavar="[DIR]...",
            default_factory=list,
            help="Finished runs and sweeps whose small files are kept in docs/results first, by their names.",
        ),
    ],
) -> None:
    """Fill the tables of README.md and docs/*.md from docs/results, in a checkout."""
    from mara_ray.evaluation.documents import RESULTS, fill_pages, pages
    from mara_ray.evaluation.run_results import keep_results

    pages(Path())  # refuses what is no checkout before anything is written
    for directory in finished:
        keep_results(directory, RESULTS / directory.absolute().name)
        progress.say(f"kept: {RESULTS / directory.absolute().name}")
    for page, changed in fill_pages(Path()).items():
        print(f"{page}: {'filled anew' if changed else 'as it was'}")
