"""The pipeline: which stages there are, what each depends on, and which are done already.

A stage is done when the manifest holds its inputs' hash (configuration sections and the outputs of
the stages before it) and its outputs lie there unchanged. A stage that is not done runs again in its
own folder and picks up what it left there; if the folder belongs to other inputs it is put aside
first, as <stage>.<hash>, and comes back when the same inputs do.

Runs of a sweep keep their stages in one folder, <stage>.<hash>, and link to it: a stage that two of
them have in common is done once, by whoever comes first, while the others wait.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

from mara_ray import __version__, progress
from mara_ray.artifacts import file_hash, hash_of, remove_parts, write_json
from mara_ray.config import RunConfig
from mara_ray.errors import UserError
from mara_ray.experiments.locks import locked
from mara_ray.experiments.membership import RECORD_FILE, Membership, read_record
from mara_ray.experiments.run import INPUTS_FILE, TRACKING, UNFINISHED, Run
from mara_ray.experiments.tracking import Place, Product, tracked
from mara_ray.storage import repeated


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline.

    Attributes:
        name: also the name of its folder.
        needs: stages whose outputs it reads.
        settings: the part of the configuration its outputs depend on.
        outputs: files or folders, below the run's directory, whose hashes stand for it.
        metrics: metrics files to follow in the dashboards, by prefix.
        work: does it; returns the summary for the dashboards.
        product: what its outputs are, for the dashboards; None if nothing is made from them.
    """

    name: str
    needs: tuple[str, ...]
    settings: Callable[[RunConfig], str]
    outputs: Callable[[RunConfig], tuple[str, ...]]
    metrics: Callable[[Run], dict[str, Path]]
    work: Callable[[Run, progress.Report], dict[str, Any]]
    product: str | None = None


def run_stages(run: Run, stages: tuple[Stage, ...], until: str, force: tuple[str, ...] = ()) -> list[str]:
    """Do every stage up to `until` that is not done; `force` names stages to do again from nothing.

    Returns:
        The names of the stages that were run.

    Raises:
        UserError: unknown stage; the directory is in use or cannot be written.
    """
    names = [stage.name for stage in stages]
    for name in (*force, until):
        if name not in names:
            raise UserError(f"stage: {name!r} is unknown; use one of {', '.join(names)}")
    ran = []
    with locked(run.directory / ".lock", wait=run.membership is not None):
        run.fetch_all(names)
        write_json(run.directory / "config.json", run.config.model_dump(mode="json"))
        run.send_files("config.json")
        for stage in stages[: names.index(until) + 1]:
            inputs = stage_inputs(run, stage)
            if stage.name in force:
                shutil.rmtree(run.folder(stage.name), ignore_errors=True)
            elif is_done(run, stage, inputs):
                continue
            if run.membership is None:
                _run_stage(run, stages, stage, inputs)
            elif not _run_shared(run, run.membership, stages, stage, inputs):
                continue
            ran.append(stage.name)
    return ran


def stage_inputs(run: Run, stage: Stage) -> str:
    """The hash of all that a stage is made from.

    Raises:
        UserError: a stage before it is not done.
    """
    records = run.records()
    for need in stage.needs:
        if need not in records:
            raise UserError(f"{need}: this stage of {run.directory} is not done; run `mara run` first")
    return inputs_of(stage, run.config, records)


def inputs_of(stage: Stage, config: RunConfig, records: Mapping[str, Any]) -> str:
    """The hash of all that a stage is made from, given the records of the stages before it."""
    upstream = {need: records[need]["outputs"] for need in stage.needs}
    return hash_of(stage.name, stage.settings(config), upstream, __version__)


def is_done(run: Run, stage: Stage, inputs: str) -> bool:
    """Whether the manifest has the stage from these inputs, and its outputs lie there unchanged."""
    record = run.records().get(stage.name)
    if record is None or record["inputs"] != inputs:
        return False
    outputs = ((run.directory / name, value) for name, value in record["outputs"].items())
    return all(path.exists() and file_hash(path) == value for path, value in outputs)


def config_parts(*paths: str) -> Callable[[RunConfig], str]:
    """A stage's settings: the run's seed and the configuration's sections or fields at dotted paths."""

    def settings(config: RunConfig) -> str:
        tree = config.model_dump(mode="json")
        return hash_of(config.seed, [reduce(getitem, path.split("."), tree) for path in paths])

    return settings


def files(*names: str) -> Callable[[RunConfig], tuple[str, ...]]:
    """Outputs that do not depend on the configuration."""
    return lambda config: names


def no_metrics(run: Run) -> dict[str, Path]:
    """A stage without a metrics file."""
    return {}


def _run_shared(
    run: Run, membership: Membership, stages: tuple[Stage, ...], stage: Stage, inputs: str
) -> bool:
    """Take a stage from where the sweep's runs share it; whether it had to be done first."""
    folder = membership.folder(stage.name, inputs)
    with locked(folder.with_name(f".{folder.name}.lock"), wait=True):
        link, record = run.directory / stage.name, folder / RECORD_FILE
        target = os.path.relpath(folder.resolve(), run.directory.resolve())
        if not link.is_symlink() or os.readlink(link) != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        if found := read_record(record):
            _keep_record(run, stage.name, found)
            if is_done(run, stage, inputs):
                return False
        _run_stage(run, stages, stage, inputs)
        write_json(record, run.records()[stage.name])
    return True


def _run_stage(run: Run, stages: tuple[Stage, ...], stage: Stage, inputs: str) -> None:
    _claim_folder(run, stage.name, inputs)
    started, started_cpu = time.monotonic(), time.process_time()
    with (
        repeated(partial(run.send_folder, stage.name)),
        tracked(run.config, stage.name, _place(run, stage.name, inputs), stage.metrics(run)) as logged,
        progress.shown(stage.name) as report,
    ):
        logged.summary.update(stage.work(run, report))
        outputs = {name: file_hash(run.directory / name) for name in stage.outputs(run.config)}
        if stage.product is not None:
            records, by_name = run.records(), {other.name: other for other in stages}
            made_from = {
                str(by_name[need].product): hash_of(records[need]["outputs"]) for need in stage.needs
            }
            paths = tuple(run.directory / name for name in outputs)
            logged.product = Product(stage.product, hash_of(outputs), paths, made_from)
    record = {
        "inputs": inputs,
        "outputs": outputs,
        "wall_s": round(time.monotonic() - started, 2),
        "driver_cpu_s": round(time.process_time() - started_cpu, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _keep_record(run, stage.name, record)
    run.send_folder(TRACKING)
    run.send_files(
        *(name for name in stage.outputs(run.config) if (run.directory / name).parent == run.directory)
    )
    run.send_files(run.manifest_path.name)
    if run.storage is not None:
        run.storage.delete(f"{UNFINISHED}/{inputs}")
    where = f"{run.place}/{stage.name}" if run.storage else run.folder(stage.name)
    progress.say(f"{stage.name}: done in {record['wall_s']:.0f} s -> {where}")


def _keep_record(run: Run, stage: str, record: dict[str, Any]) -> None:
    write_json(run.manifest_path, {"version": __version__, "stages": {**run.records(), stage: record}})


def _place(run: Run, stage: str, inputs: str) -> Place:
    if run.membership is not None:
        return run.membership.place(stage, inputs)
    group = hash_of(run.config.model_dump(mode="json"))
    return Place(run.directory / TRACKING, group, stage, f"{run.config.name}-{stage}")


def _claim_folder(run: Run, stage: str, inputs: str) -> None:
    """Make the folder ours: keep what a killed run left, put aside what belongs to other inputs."""
    folder, owner = run.folder(stage), run.owner_of(stage)
    if owner == inputs:
        remove_parts(folder)
        return
    if owner is not None and folder != run.directory / stage:
        folder = run.directory / stage
        folder.unlink()  # a link to what a sweep shares, which stays where it is
    elif owner is not None:
        aside = folder.with_name(f"{folder.name}.{owner}")
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(folder, aside)
        run.send_folder(aside.name)
        progress.say(f"{stage}: made from other inputs; put aside as {aside}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    before = folder.with_name(f"{folder.name}.{inputs}")
    run.fetch_part(before, before.name)
    if (before / INPUTS_FILE).is_file():
        os.replace(before, folder)
        return
    folder.mkdir(parents=True)
    (folder / INPUTS_FILE).write_text(inputs + "\n")
