"""The stages of a run, in order: curves, predictor, forecasts, workloads, allocator, evaluation, report.

RLlib, Ray Train and the pictures are imported by the stages that use them: they take seconds, and a run
with nothing to do should say so at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray

from mara_ray.artifacts import file_hash, write_json, written_whole
from mara_ray.config import RunConfig
from mara_ray.curves.bank import CurveBank, first_crossing, located_bank
from mara_ray.experiments.cluster import connect, wait_for
from mara_ray.experiments.comparison import (
    all_cells,
    compare_cell,
    draw_cell,
    policy_metrics,
    read_bank,
    workload_path,
)
from mara_ray.experiments.pipeline import Stage, config_parts, files, no_metrics
from mara_ray.experiments.policies import make_policies, policy_files, policy_settings
from mara_ray.experiments.run import Run
from mara_ray.pools import cpu_nodes
from mara_ray.predictor.evaluate import evaluate_predictors, from_table
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.forecast import CurvePredictor, ForecastTable, OraclePredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.predictor.rivals import make_rival
from mara_ray.predictor.weights import WEIGHTS_FILE, located_predictor
from mara_ray.progress import Report


def make_curves(run: Run, report: Report) -> dict[str, Any]:
    """Train the learning tasks, or take the bank that was asked for."""
    from mara_ray.curves.generate import generate_bank

    if run.config.curves.bank is not None:
        bank = CurveBank.read(located_bank(run.config.curves.bank))
        bank.write(run.folder("curves") / "bank.parquet")
    else:
        connect(run.config.cluster)
        bank = generate_bank(run.config.curves, run.config.seed, run.folder("curves"), report)
    return {"curves": len(bank), "accepted": int(bank.accepted.sum()), "hash": bank.content_hash}


def make_predictor(run: Run, report: Report) -> dict[str, Any]:
    """Train the flow-matching predictor, or take the one that was asked for."""
    from mara_ray.predictor.train import train_predictor

    if run.config.predictor.trained is not None:
        predictor = FlowPredictor.load(located_predictor(run.config.predictor.trained))
        predictor.save(run.folder("predictor"))
        return {"hash": predictor.content_hash}
    connect(run.config.cluster)
    predictor = train_predictor(
        run.config.predictor, read_bank(run), run.config.seed, run.folder("predictor"), report, run.storage
    )
    return {"hash": predictor.content_hash}


def make_forecasts(run: Run, report: Report) -> dict[str, Any]:
    """Predict every prefix of the bank once with each predictor, and compare them on test curves."""
    bank = read_bank(run)
    target_CG = bank.target_losses(run.config.workload.target_fractions)
    warmup_points = run.config.predictor.warmup_points
    flow = FlowPredictor.load(run.folder("predictor"))
    trained, seed = run.folder("forecasts") / "trained", run.config.seed
    predictors: tuple[CurvePredictor, ...] = (
        flow,
        WLSPredictor(warmup_points),
        OraclePredictor(),
        *(
            make_rival(name, flow, run.config.predictor, bank, seed, trained, report)
            for name in run.config.evaluation.rivals
        ),
    )
    tables = {
        predictor.name: ForecastTable.build(
            predictor, bank, target_CG, run.folder("forecasts") / predictor.name, report
        )
        for predictor in predictors
    }
    points_needed_CG = first_crossing(bank.ema_CL, target_CG)
    num_seen_P = np.arange(warmup_points, bank.length_points)
    forecasts = {name: from_table(table) for name, table in tables.items()}
    evaluation = evaluate_predictors(forecasts, bank, points_needed_CG, num_seen_P)
    write_json(run.folder("forecasts") / "evaluation.json", evaluation)
    return {name: table.predictor_hash for name, table in tables.items()}


def make_workloads(run: Run, report: Report) -> dict[str, Any]:
    """Freeze the evaluation episodes."""
    bank, cells, tasks = read_bank(run), all_cells(run.config), 0
    for number, cell in enumerate(cells):
        workload = draw_cell(run.config, bank, cell)
        workload.save(workload_path(run, cell))
        tasks += int(workload.num_tasks_B.sum())
        report(number + 1, len(cells), cell.name)
    return {"workloads": len(cells), "tasks": tasks}


def make_evaluation(run: Run, report: Report) -> dict[str, Any]:
    """Play every cell under every method."""
    parts = {
        cell: run.folder("evaluation") / "parts" / f"{cell.name}.parquet" for cell in all_cells(run.config)
    }
    connect(run.config.cluster)
    compare = compare_cell.options(label_selector=cpu_nodes())
    tasks = {compare.remote(run, cell): path for cell, path in parts.items() if not path.is_file()}
    done_before = len(parts) - len(tasks)

    def keep(task: ray.ObjectRef, rows: pd.DataFrame) -> None:
        with written_whole(tasks[task]) as temporary:
            rows.to_parquet(temporary, index=False)

    wait_for(list(tasks), lambda finished: report(done_before + finished, len(parts), "workloads"), keep)
    rows = pd.concat([pd.read_parquet(path) for path in parts.values()], ignore_index=True)
    with written_whole(run.folder("evaluation") / "episodes.parquet") as temporary:
        rows.to_parquet(temporary, index=False)
    completed = rows.groupby("method")[["completed", "tasks"]].sum()
    return {
        f"completion/{name}": 100.0 * row["completed"] / row["tasks"] for name, row in completed.iterrows()
    }


def make_report(run: Run, report: Report) -> dict[str, Any]:
    """Summarise, draw and write."""
    from mara_ray.experiments.reporting import write_summary_and_report

    return write_summary_and_report(run, report)


def curve_settings(config: RunConfig) -> str:
    """What the bank depends on: the trainings, or the bytes of the bank that was asked for."""
    if config.curves.bank is not None:
        return file_hash(located_bank(config.curves.bank))
    return config_parts("curves.configurations", "curves.length_points", "curves.batches_per_point")(config)


def predictor_settings(config: RunConfig) -> str:
    """What the predictor depends on: its training, or the bytes of the one that was asked for."""
    if config.predictor.trained is not None:
        return file_hash(located_predictor(config.predictor.trained) / WEIGHTS_FILE)
    return config_parts("predictor")(config)


def predictor_metrics(run: Run) -> dict[str, Path]:
    """The predictor's metrics file."""
    return {"fm": run.folder("predictor") / "metrics.jsonl"}


def forecast_files(config: RunConfig) -> tuple[str, ...]:
    """The tables, and what they were found to be worth."""
    names = ("fm", "wls", "oracle", *config.evaluation.rivals, "evaluation.json")
    return tuple(f"forecasts/{name}" for name in names)


EPISODES = ("evaluation.sets", "evaluation.loads", "evaluation.num_roots", "evaluation.episodes_per_root")

STAGES = (
    Stage(
        name="curves",
        needs=(),
        settings=curve_settings,
        outputs=files("curves/bank.parquet"),
        metrics=no_metrics,
        work=make_curves,
        product="bank",
    ),
    Stage(
        name="predictor",
        needs=("curves",),
        settings=predictor_settings,
        outputs=files("predictor/weights.safetensors", "predictor/predictor.json"),
        metrics=predictor_metrics,
        work=make_predictor,
        product="predictor",
    ),
    Stage(
        name="forecasts",
        needs=("curves", "predictor"),
        settings=config_parts("predictor", "workload.target_fractions", "evaluation.rivals"),
        outputs=forecast_files,
        metrics=no_metrics,
        work=make_forecasts,
        product="forecasts",
    ),
    Stage(
        name="workloads",
        needs=("curves",),
        settings=config_parts("workload", *EPISODES),
        outputs=lambda config: tuple(f"workloads/{cell.name}.npz" for cell in all_cells(config)),
        metrics=no_metrics,
        work=make_workloads,
        product="workloads",
    ),
    Stage(
        name="allocator",
        needs=("curves", "forecasts"),
        settings=policy_settings,
        outputs=policy_files,
        metrics=policy_metrics,
        work=make_policies,
        product="policy",
    ),
    Stage(
        name="evaluation",
        needs=("curves", "forecasts", "workloads", "allocator"),
        settings=config_parts("simulator", *EPISODES, "evaluation.methods", "evaluation.milp_seconds"),
        outputs=files("evaluation/episodes.parquet"),
        metrics=no_metrics,
        work=make_evaluation,
        product="result",
    ),
    Stage(
        name="report",
        needs=("curves", "predictor", "forecasts", "workloads", "allocator", "evaluation"),
        settings=config_parts("name", "evaluation.bootstrap_resamples"),
        outputs=files("summary.json", "report.html"),
        metrics=no_metrics,
        work=make_report,
    ),
)
