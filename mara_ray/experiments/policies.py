"""The policies of a run: trained, several at a time, or taken from elsewhere."""

from __future__ import annotations

import platform
import shutil
from functools import partial
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mara_ray.allocator.mat.policy import FACTS_FILE, WEIGHTS_FILE, MATAllocator, located_policies
from mara_ray.allocator.methods import method_named
from mara_ray.artifacts import file_hash, hash_of, write_json, written_whole
from mara_ray.config import RunConfig
from mara_ray.experiments.cluster import connect, gang, wait_for
from mara_ray.experiments.comparison import policy_metrics, policy_name, policy_names
from mara_ray.experiments.pipeline import config_parts
from mara_ray.experiments.run import Run
from mara_ray.pools import check_room
from mara_ray.progress import Report
from mara_ray.provenance import command, versions
from mara_ray.storage import repeated


@ray.remote(num_cpus=1)
def _train_policy(run: Run, name: str, training_seed: int, unfinished: str) -> float:
    """Train one policy; the CPU seconds that this took, those before a kill included (EnvRunners' not)."""
    from mara_ray.allocator.mat.algorithm import train_policy
    from mara_ray.allocator.mat.checkpoints import last_checkpoint

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
    last = last_checkpoint(directory)
    return round(last[1].cpu_s, 1) if last else 0.0


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
        "hashes": {name: file_hash(run.folder("allocator") / name / WEIGHTS_FILE) for name in metrics},
        "versions": versions(),
        "processor": platform.machine(),
    }
    write_json(run.folder("allocator") / "manifest.json", manifest)
    return {"policies": len(groups)}


def policy_settings(config: RunConfig) -> str:
    """What the policies depend on: their training, or the bytes of those that were asked for."""
    if config.allocator.trained is not None:
        folder = located_policies(config.allocator.trained)
        kept = (WEIGHTS_FILE, FACTS_FILE)
        return hash_of([file_hash(folder / name / file) for name in policy_names(config) for file in kept])
    return config_parts("workload", "simulator", "allocator")(config)


def policy_files(config: RunConfig) -> tuple[str, ...]:
    """What stands for the trained policies."""
    return tuple(
        f"allocator/{policy}/{name}" for policy in policy_names(config) for name in (WEIGHTS_FILE, FACTS_FILE)
    )
