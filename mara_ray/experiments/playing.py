"""Play a run's methods on workloads other than its own: the stress test, its random family, or a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from mara_ray.artifacts import file_hash, hash_of, written_whole
from mara_ray.config import RunConfig
from mara_ray.errors import UserError
from mara_ray.evaluation.metrics import bound_rows
from mara_ray.experiments.comparison import REFERENCES, Arena
from mara_ray.experiments.pipeline import Stage, config_parts, files, no_metrics
from mara_ray.experiments.run import Run
from mara_ray.progress import Report
from mara_ray.workload.episodes import Workload
from mara_ray.workload.stress import check_share, stress_family, stress_test
from mara_ray.workload.traces import SAMPLE_TRACE, read_trace, trace_workload

STRESS = "stress"
EPISODES = 20
SECONDS_PER_STEP = 300.0  # of a trace, unless asked otherwise


def play_stage(sources: tuple[str, ...]) -> Stage:
    """A stage that plays workloads with a run's policies: play/episodes.parquet, with a column `workload`."""

    def settings(config: RunConfig) -> str:
        traces = [file_hash(Path(source)) for source in sources if Path(source).is_file()]
        parts = config_parts("workload", "simulator", "evaluation.methods", "evaluation.milp_seconds")
        return hash_of(sources, traces, parts(config))

    def work(run: Run, report: Report) -> dict[str, Any]:
        parts: list[pd.DataFrame] = []
        for source in sources:
            report(len(parts), len(sources), source)
            parts.append(play_workload(run, source, SECONDS_PER_STEP).assign(workload=source))
        rows = pd.concat(parts, ignore_index=True)
        with written_whole(run.folder("play") / "episodes.parquet") as temporary:
            rows.to_parquet(temporary, index=False)
        means = rows.groupby("method")["completed"].mean()
        return {f"completed/{name}": float(mean) for name, mean in means.items()}

    outputs = files("play/episodes.parquet")
    needs = ("curves", "forecasts", "allocator")
    return Stage("play", needs, settings, outputs, no_metrics, work, product="result")


def play_workload(run: Run, source: str, seconds_per_step: float) -> pd.DataFrame:
    """Play the run's methods on the test curves of set `id`.

    Args:
        run: its forecasts and policies are there.
        source: `stress`, `stress:SHARE` (feasible share of the random family), `sample` (the synthetic trace
            that ships) or the path of a trace's CSV.
        seconds_per_step: of a trace.

    Returns:
        Rows of `metrics.episode_rows` and of the bounds.

    Raises:
        UserError: there is no such workload, or it does not fit the run's episodes.
    """
    arena = Arena.load(run)
    workload = _workload(run, arena, source, seconds_per_step)
    place: dict[str, Any] = {"set_name": "id", "load": 0.0, "root": 0}
    played = arena.episodes((*run.config.evaluation.methods, *REFERENCES), workload, place)
    seconds = run.config.evaluation.milp_seconds
    bounds = bound_rows(workload, arena.replay, run.config.simulator, seconds=seconds, **place)
    return pd.concat([played, bounds], ignore_index=True)


def check_source(source: str) -> None:
    """Refuse what `play_workload` cannot play.

    Raises:
        UserError: there is no such workload.
    """
    kind, _, share = source.partition(":")
    if kind != STRESS:
        read_trace(_trace_file(source))
    elif share:
        check_share(_share(source))


def _trace_file(source: str) -> Path:
    return SAMPLE_TRACE if source == "sample" else Path(source)


def _share(source: str) -> float:
    """The feasible share of stress:SHARE."""
    try:
        return float(source.partition(":")[2])
    except ValueError as error:
        raise UserError(
            f"workload: {source!r} is not stress:SHARE; give a number, as in stress:0.5"
        ) from error


def _workload(run: Run, arena: Arena, source: str, seconds_per_step: float) -> Workload:
    config, rows, seed = run.config.workload, arena.bank.rows("id", "test"), run.config.seed
    needed_CG = arena.replay.points_needed_CG
    kind, _, share = source.partition(":")
    if kind != STRESS:
        trace = read_trace(_trace_file(source))
        return trace_workload(trace, config, needed_CG, rows, seconds_per_step, seed)
    if not share:
        return stress_test(needed_CG, rows, EPISODES, seed)
    return stress_family(config, needed_CG, rows, _share(source), EPISODES, seed)
