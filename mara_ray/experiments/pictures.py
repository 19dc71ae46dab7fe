"""The pictures of a run: of its results, of one episode, of its curves, forecasts and trainings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mara_ray.allocator.methods import method_named
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.evaluation.curve_plots import Fan, forecast_fans, sample_curves
from mara_ray.evaluation.forecast_plots import error_by_prefix, reliability
from mara_ray.evaluation.gantt import gantt
from mara_ray.evaluation.lead_plots import lead_figure
from mara_ray.evaluation.load_plots import load_curves
from mara_ray.evaluation.plots import Picture, completion_bars, learning_curves
from mara_ray.evaluation.run_results import RunResults, SweepResults
from mara_ray.evaluation.tables import CHAMPION, REFERENCE, in_order, label
from mara_ray.experiments.comparison import Arena, Cell, all_cells, policy_metrics, workload_path
from mara_ray.experiments.run import Run
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.workload.episodes import Workload

NUM_FANS = 6
FAN_SHARE = 8  # a fan shows the forecast after an eighth of the curve
FAN_FRACTION = 0.9  # of the log-drop: the target of a fan
LEARNING_COLUMNS = {
    "validation_completion": "completion on validation episodes, %",
    "team_return": "team return per training episode",
    "entropy": "entropy of a node's choice",
}


def run_pictures(run: Run, results: RunResults, sweeps: Sequence[SweepResults]) -> dict[str, Picture]:
    """All pictures there is something for, by name, in the order of reading."""
    arena, cell = Arena.load(run), all_cells(run.config)[0]
    pictures = [completion_bars(results.summary)]
    if len(results.loads) > 1:
        pictures.append(load_curves(results.loads))
    methods = in_order(run.config.evaluation.methods)
    if len(methods) > 1:
        others = [name for name in (REFERENCE, *methods) if name in methods[1:]]
        first = CHAMPION if CHAMPION in methods else methods[0]
        pictures.append(draw_episode(arena, (first, others[0]), cell, 0))
    pictures += [sample_curves(arena.bank), forecast_fans(_fans(run, arena.bank))]
    pictures += [error_by_prefix(results.predictors), reliability(results.predictors)]
    if histories := _histories(run):
        pictures.append(learning_curves(histories, LEARNING_COLUMNS))
    named = {picture.name: picture for picture in pictures}
    for sweep in sweeps:
        if picture := lead_figure(pd.DataFrame(sweep.leads), list(sweep.axes)):
            named[f"leads-{sweep.name}"] = picture
    return named


def draw_episode(arena: Arena, methods: Sequence[str], cell: Cell, episode: int) -> Picture:
    """One frozen episode under several methods, learned ones with their first training seed.

    Raises:
        UserError: the run has no such method, workload or episode.
    """
    run = arena.run
    for name in methods:
        if not (run.folder("forecasts") / method_named(name).forecast).is_dir():
            raise UserError(
                f"methods: {name!r} needs forecasts of {method_named(name).forecast!r}, which this run lacks;"
                " add it to evaluation.rivals and run again"
            )
    for field, value in (("set_name", cell.set_name), ("load", cell.load), ("root", cell.root)):
        known = list(dict.fromkeys(getattr(other, field) for other in all_cells(run.config)))
        if value not in known:
            raise UserError(f"{field}: {value!r} was not evaluated; use one of {', '.join(map(str, known))}")
    workload = Workload.load(workload_path(run, cell))
    if not 0 <= episode < workload.num_episodes:
        raise UserError(
            f"episode: {episode} is not among those of a workload root; use 0 to {workload.num_episodes - 1}"
        )
    one = workload.take(slice(episode, episode + 1))
    rollouts = {name: next(arena.play(name, one))[1] for name in methods}
    where = f"{label(cell.set_name)}, load p = {cell.load:g}, workload root {cell.root}, episode {episode}"
    return gantt(rollouts, 0, where)


def _histories(run: Run) -> dict[str, pd.DataFrame]:
    """The metrics of every training that has left some."""
    return {
        name: pd.read_json(path, lines=True) for name, path in policy_metrics(run).items() if path.is_file()
    }


def _fans(run: Run, bank: CurveBank) -> list[Fan]:
    """Forecasts for test curves of different configurations, the first of each in turn."""
    predictor = FlowPredictor.load(run.folder("predictor"))
    test_rows = np.flatnonzero(bank.accepted & (bank.split == "test"))
    numbers = pd.Series(bank.configuration[test_rows]).groupby(bank.configuration[test_rows]).cumcount()
    chosen = test_rows[np.argsort(numbers.to_numpy(), kind="stable")][:NUM_FANS]
    num_seen = max(bank.length_points // FAN_SHARE, predictor.shape.warmup_points)
    target_F = bank.target_losses((FAN_FRACTION,))[chosen, 0]
    means_FNH = predictor.futures(bank.ema_CL, chosen, np.full(len(chosen), num_seen), target_F)
    return [
        Fan(
            str(bank.curve_id[row]),
            bank.ema_CL[row],
            num_seen,
            means_NH,
            target=float(target),
            last_bin_ratio=predictor.shape.last_bin_ratio,
        )
        for row, means_NH, target in zip(chosen, means_FNH, target_F, strict=True)
    ]
