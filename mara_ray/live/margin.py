"""MARA's lead over LARA in wall-clock time, with all that switching really costs, beside the simulator's.

Axis letters: G target levels.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mara_ray import __version__, pretrained
from mara_ray.allocator.mat.policy import located_policies
from mara_ray.artifacts import file_hash, hash_of, read_json, write_json
from mara_ray.config import ClusterConfig, RunConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.evaluation.rollout import rollout
from mara_ray.experiments.locks import locked
from mara_ray.live.jobs import Job, Jobs
from mara_ray.live.method import LiveMethod, check_name, live_method
from mara_ray.live.run import Place, run_jobs
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.progress import say
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import Workload, draw_workload

STANDARD = Path("standard")


def trained_again(
    bank: CurveBank, target_CG: np.ndarray, workload: Workload, config: RunConfig, step_s: float | None
) -> Jobs:
    """The one episode of a workload as jobs, each the training that its curve in the bank came from.

    Args:
        bank: made with `config.curves`.
        target_CG: targets of its curves.
        workload: one episode.
        config: the run's.
        step_s: seconds that a step counts for in arrivals and deadlines; None leaves them in steps.
    """

    def moment(steps: int) -> int | str:
        return steps if step_s is None else f"{steps * step_s:.3f}s"

    jobs = []
    for task in range(int(workload.num_tasks_B[0])):
        row, arrival = int(workload.curve_BJ[0, task]), int(workload.arrival_BJ[0, task])
        arguments = {
            "configuration": str(bank.configuration[row]),
            "hyperparameters": bank.hyperparameters_of(row),
            "seed": int(bank.seed[row]),
            "batches_per_point": config.curves.batches_per_point,
        }
        job = {
            "name": f"task{task}",
            "entry": "mara_ray.curves.training:make_task",
            "arguments": arguments,
            "target": float(target_CG[row, workload.level_BJ[0, task]]),
            "deadline": moment(int(workload.deadline_BJ[0, task]) - arrival),
            "arrival": moment(arrival),
        }
        jobs.append(Job.model_validate(job))
    return Jobs(jobs=tuple(jobs), points=bank.length_points)


def simulated_met(bank: CurveBank, config: RunConfig, workload: Workload, method: LiveMethod) -> int:
    """Tasks of an episode that the simulator lets a method finish in time."""
    curves, place_J = np.unique(workload.curve_BJ[0], return_inverse=True)
    part = bank.take(curves)  # forecasts of the others are not needed
    replay = CurveReplay.from_bank(part, config.workload.target_fractions)
    steps_CLGN = method.predictor.predict_curves(part.ema_CL, replay.target_CG)
    table = ForecastTable(method.predictor.name, steps_CLGN, part.content_hash, "")
    simulator = Simulator(config.simulator, config.workload.episode_steps, replay)
    same = replace(workload, curve_BJ=place_J.astype(np.int32)[None])
    return int((rollout(simulator, table, method.allocator, same).outcomes.finished_BJ >= 0).sum())


def measure_margin(
    config: RunConfig,
    methods: tuple[str, ...],
    policies: Path,
    num_workloads: int,
    cluster: ClusterConfig,
    out: Path,
) -> dict[str, Any]:
    """Play workloads on the test curves of the shipped bank live and in the simulator; go on where it was.

    The first workload is played once more with deadlines in steps: the mean time of its steps that serve a
    task is what a step counts for in the wall-clock arrivals and deadlines of all.

    Returns:
        The content of margin.json: per workload and method the share of tasks on time, and the mean lead.

    Raises:
        UserError: not two methods, one that is unknown or has no policy, or the folder holds another
            measurement.
    """
    if len(methods) != 2:
        raise UserError(f"--methods: {','.join(methods)} are not two; give two, as mara,lara")
    for name in methods:
        check_name(name, "--methods")
    loaded = {name: live_method(name, STANDARD, policies) for name in methods}
    folder = located_policies(policies)
    trained = file_hash(folder) if folder.exists() else ""
    with locked(out / ".lock"):
        _claim(out, hash_of(config.model_dump(mode="json"), trained, __version__))
        return _measure(config, loaded, num_workloads, cluster, out)


def _claim(out: Path, made_from: str) -> None:
    """Refuse a folder that was measured with another configuration or with other policies."""
    path = out / "made_from.json"
    if not path.is_file() and not any(out.glob("*/outcome.json")):
        write_json(path, made_from)
    elif not path.is_file() or read_json(path) != made_from:
        raise UserError(f"--out: {out} holds another measurement; choose another")


def _measure(
    config: RunConfig,
    methods: Mapping[str, LiveMethod],
    num_workloads: int,
    cluster: ClusterConfig,
    out: Path,
) -> dict[str, Any]:
    """See `measure_margin`."""
    bank = CurveBank.read(pretrained.BANK)
    replay = CurveReplay.from_bank(bank, config.workload.target_fractions)
    workloads = [
        draw_workload(
            config.workload, bank.rows("id", "test"), config.workload.arrival_probability, 1, config.seed,
            "live", number,
        )
        for number in range(num_workloads)
    ]  # fmt: skip
    place = Place(config.simulator.num_nodes, config.simulator.num_slots)

    def live(method: LiveMethod, number: int, step_s: float | None, folder: Path) -> dict[str, Any]:
        if not (folder / "outcome.json").is_file():
            say(f"live margin: {folder.name}")
            jobs = trained_again(bank, replay.target_CG, workloads[number], config, step_s)
            run_jobs(jobs, method, cluster, place, folder, chart=False)
        return {**read_json(folder / "outcome.json"), **read_json(folder / "timings.json")}

    step_s = live(live_method("fifo", STANDARD, STANDARD), 0, None, out / "pace")["mean_step_s"]
    rows: list[dict[str, Any]] = []
    first, second = methods
    for number, workload in enumerate(workloads):
        row: dict[str, Any] = {"tasks": int(workload.num_tasks_B[0]), "live": {}, "simulated": {}}
        for name, method in methods.items():
            outcome = live(method, number, step_s, out / f"{name}-{number}")
            row["live"][name] = 100 * outcome["met"] / outcome["of"]
            met = simulated_met(bank, config, workload, method)
            row["simulated"][name] = 100 * met / row["tasks"]
        rows.append(row)
        summary = {
            "step_s": step_s,
            "workloads": rows,
            "lead_points": {
                kind: statistics.mean(row[kind][first] - row[kind][second] for row in rows)
                for kind in ("live", "simulated")
            },
        }
        write_json(out / "margin.json", summary)
    return summary
