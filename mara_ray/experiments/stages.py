"""The stages of a run, in order: curves, predictor, forecasts, workloads, allocator, evaluation, report.

RLlib, Ray Train and the pictures are imported by the stages that use them: they take seconds, and a run
with nothing to do should say so at once.
"""

from __future__ import annotations

import platform
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mara_ray.allocator.mat.policy import FACTS_FILE, MATAllocator, located_policies
from mara_ray.allocator.mat.policy import WEIGHTS_FILE as POLICY_WEIGHTS
from mara_ray.allocator.methods import method_named
from mara_ray.artifacts import file_hash, hash_of, write_json, written_whole
from mara_ray.config import RunConfig
from mara_ray.curves.bank import CurveBank, first_crossing, located_bank
from mara_ray.curves.catalog import configuration_named
from mara_ray.errors import UserError
from mara_ray.experiments.cluster import connect, gang, wait_for
from mara_ray.experiments.comparison import (
    all_cells,
    compare_cell,
    draw_cell,
    policy_metrics,
    policy_name,
    policy_names,
    read_bank,
    workload_path,
)
from mara_ray.experiments.pipeline import Run, Stage, config_parts, files, no_metrics
from mara_ray.pools import check_room, cpu_nodes
from mara_ray.predictor.evaluate import evaluate_predictors, from_table
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.forecast import CurvePredictor, ForecastTable, OraclePredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.predictor.rivals import make_rival
from mara_ray.predictor.weights import WEIGHTS_FILE, located_predictor
from mara_ray.progress import Report
from mara_ray.provenance import command, versions
from mara_ray.storage import repeated


def check_config(config: RunConfig) -> None:
    """Refuse at once what would only fail hours later.

    Raises:
        UserError: unknown names, a set without curves, or a method without its policy.
    """
    if config.curves.bank is None:
        origin = "curves.configurations"
        sets = {configuration_named(name).set for name in config.curves.configurations}
    else:
        origin, bank = "curves.bank", CurveBank.read(located_bank(config.curves.bank))
        sets = set(bank.set[bank.accepted].tolist())
    if config.predictor.trained is not None:
        FlowPredictor.load(located_predictor(config.predictor.trained))
    for set_name in ("id", *config.evaluation.sets):
        if set_name not in sets:
            raise UserError(
                f"{origin}: no curve is of set {set_name!r}; add some, or drop the set from evaluation.sets"
            )
    for name in config.evaluation.methods:
        _check_forecast("evaluation.methods", name, config)
        if method_named(name).make is None and name not in config.allocator.policies:
            raise UserError(
                f"evaluation.methods: {name!r} needs a trained policy; add it to allocator.policies"
            )
    for name in config.allocator.policies:
        _check_forecast("allocator.policies", name, config)
        if method_named(name).make is not None:
            raise UserError(
                f"allocator.policies: {name!r} is a rule, and nothing of it is trained; leave it out"
            )
    if config.allocator.trained is not None:
        for name in policy_names(config):
            MATAllocator.load(located_policies(config.allocator.trained) / name)


def _check_forecast(field: str, name: str, config: RunConfig) -> None:
    forecast = method_named(name).forecast
    if forecast not in ("fm", "wls", "oracle", *config.evaluation.rivals):
        raise UserError(f"{field}: {name!r} needs forecasts of {forecast!r}; add it to evaluation.rivals")


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


@ray.remote(num_cpus=1)
def _train_policy(run: Run, name: str, training_seed: int, unfinished: str) -> float:
    """Train one policy; the CPU seconds that this took here, after the last interruption."""
    from mara_ray.allocator.mat.algorithm import train_policy

    before_s = time.process_time()

    method, config = method_named(name), run.config
    if method.sparse:
        simulator = config.simulator.model_copy(update={"potential_weight": 0.0})
        config = config.model_copy(update={"simulator": simulator})
    prepare = partial(run.on_this_node, curves="bank.parquet", forecasts=f"{method.forecast}/")
    here = prepare()
    directory = here.folder("allocator") / policy_name(name, training_seed)
    here.fetch_part(directory, unfinished)
    with repeated(partial(here.send_part, directory, unfinished)):
        train_policy(
            config,
            method.forecast,
            training_seed,
            here.folder("curves") / "bank.parquet",
            here.folder("forecasts") / method.forecast,
            directory,
            prepare=prepare,
        )
    return round(time.process_time() - before_s, 1)


def make_policies(run: Run, report: Report) -> dict[str, Any]:
    """Train the policies, several at a time, or take those that were asked for."""
    allocator, metrics = run.config.allocator, policy_metrics(run)
    if allocator.trained is not None:
        for name in policy_names(run.config):
            folder = located_policies(allocator.trained) / name
            policy = MATAllocator.load(folder)
            policy.save(run.folder("allocator") / name)
            if (history := folder / metrics[name].name).is_file():
                with written_whole(metrics[name]) as temporary:
                    shutil.copyfile(history, temporary)
        return {"policies": len(metrics)}
    total = len(metrics) * allocator.updates

    def tick(finished: int) -> None:
        lines = sum(max(0, path.read_bytes().count(b"\n") - 1) for path in metrics.values() if path.is_file())
        report(lines, total, f"updates; {finished} of {len(metrics)} policies finished")

    connect(run.config.cluster)
    check_room(allocator.num_env_runners, trainer_cpus=1)
    groups: dict[ray.ObjectRef, PlacementGroup] = {}
    unfinished = {name: run.unfinished("allocator", name) for name in metrics}
    for name in allocator.policies:
        for training_seed in range(allocator.num_seeds):
            group = gang(1 + allocator.num_env_runners)
            place = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
            train = _train_policy.options(scheduling_strategy=place)
            part = unfinished[policy_name(name, training_seed)]
            groups[train.remote(run, name, training_seed, part)] = group

    def follow() -> None:
        for name, part in unfinished.items():
            run.fetch_part(run.folder("allocator") / name, part)

    try:
        with repeated(follow):
            wait_for(list(groups), tick, lambda task, result: remove_placement_group(groups[task]))
    finally:  # where one failed, the others would hold their CPUs
        for group in groups.values():
            remove_placement_group(group)
    manifest = {
        "command": command(),
        "config": run.config.model_dump(mode="json", include={"seed", "workload", "simulator", "allocator"}),
        "cpu_s": dict(zip(metrics, ray.get(list(groups)), strict=True)),
        "hashes": {name: file_hash(run.folder("allocator") / name / POLICY_WEIGHTS) for name in metrics},
        "versions": versions(),
        "processor": platform.machine(),
    }
    write_json(run.folder("allocator") / "manifest.json", manifest)
    return {"policies": len(groups)}


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


def policy_settings(config: RunConfig) -> str:
    """What the policies depend on: their training, or the bytes of those that were asked for."""
    if config.allocator.trained is not None:
        folder = located_policies(config.allocator.trained)
        kept = (POLICY_WEIGHTS, FACTS_FILE)
        return hash_of([file_hash(folder / name / file) for name in policy_names(config) for file in kept])
    return config_parts("workload", "simulator", "allocator")(config)


def predictor_metrics(run: Run) -> dict[str, Path]:
    """The predictor's metrics file."""
    return {"fm": run.folder("predictor") / "metrics.jsonl"}


def forecast_files(config: RunConfig) -> tuple[str, ...]:
    """The tables, and what they were found to be worth."""
    names = ("fm", "wls", "oracle", *config.evaluation.rivals, "evaluation.json")
    return tuple(f"forecasts/{name}" for name in names)


def policy_files(config: RunConfig) -> tuple[str, ...]:
    """What stands for the trained policies."""
    return tuple(
        f"allocator/{policy}/{name}"
        for policy in policy_names(config)
        for name in (POLICY_WEIGHTS, FACTS_FILE)
    )


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
