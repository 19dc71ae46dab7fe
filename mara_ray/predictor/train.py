"""Training of the flow predictor under Ray Train: restartable at any epoch, to the same bits.

More workers share each batch; that changes the order of its sums, and so the last bits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError

from mara_ray.artifacts import read_json, write_json
from mara_ray.background import every
from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import MachineError, UserError
from mara_ray.pools import cpu_nodes
from mara_ray.predictor.fitting import FlowTraining, calibrated, make_predictor, validation_error
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.history import History
from mara_ray.predictor.weights import CONFIG_FILE, training_identity
from mara_ray.progress import Report
from mara_ray.provenance import command, versions
from mara_ray.storage import Storage

STATE_FILE = "state.pt"
METRICS_FILE = "metrics.jsonl"
MANIFEST_FILE = "manifest.json"
MAX_FAILURES = 3
LEFT_BEHIND_S = 3.0  # until the processes of a killed driver are gone
FOLLOW_SECONDS = 0.5
# Ray Train polls its workers and looks for preempted nodes at intervals that suit day-long trainings.
TRAIN_ENVIRONMENT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


def train_predictor(
    config: PredictorConfig,
    bank: CurveBank,
    seed: int,
    directory: Path,
    progress: Report,
    storage: Storage | None = None,
) -> FlowPredictor:
    """Train on the training curves of set `id`, choose the epoch on the validation curves, and save.

    A call that was killed is picked up by the next one with the same arguments. Without a `storage`,
    `directory` must be seen by all workers; with one, they leave there what the training goes on from.
    The directory ends with weights.safetensors, predictor.json, metrics.jsonl and manifest.json.

    Raises:
        UserError: the bank has no training or validation curve, or the batch is too small to share.
        MachineError: the training failed more than `MAX_FAILURES` times.
    """
    rows = {split: bank.rows("id", split) for split in ("train", "validation")}
    for split, found in rows.items():
        if not len(found):
            raise UserError(f"curves.configurations: the bank has no accepted {split} curve; ask for more")
    if config.batch_curves < config.num_workers:
        raise UserError(
            f"predictor.num_workers: {config.num_workers} workers cannot share a batch of"
            f" {config.batch_curves} curves; raise predictor.batch_curves"
        )
    identity = training_identity(config, bank, seed)
    if (directory / CONFIG_FILE).is_file() and read_json(directory / CONFIG_FILE).get(
        "made_from"
    ) == identity:
        return FlowPredictor.load(directory)
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    name = f"train-{identity}"
    history = History(directory / METRICS_FILE, storage, f"{name}/{METRICS_FILE}")
    place = {"storage_path": str(directory)} if storage is None else storage.for_ray()
    trainer = _Trainer(
        _train_worker,
        train_loop_config={
            "config": config.model_dump(),
            "seed": seed,
            "history": history,
            **{f"{split}_CL": bank.ema_CL[found] for split, found in rows.items()},
        },
        scaling_config=ScalingConfig(
            num_workers=config.num_workers,
            use_gpu=config.use_gpu,
            label_selector=None if config.use_gpu else cpu_nodes(),
        ),
        run_config=RunConfig(
            name=name,
            **place,
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    with _train_environment(), _followed(history, config.epochs, progress):
        try:
            checkpoint = trainer.fit().checkpoint
            assert checkpoint is not None
        except TrainingFailedError as error:
            reason = str(error).strip().splitlines()[-1]
            raise MachineError(f"predictor: its training failed ({reason}); run again to resume") from error
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder) / STATE_FILE, map_location="cpu", weights_only=True)
    predictor = calibrated(
        make_predictor(config, state["best"], seed), bank.ema_CL[rows["validation"]], config.target_fractions
    )
    predictor.save(directory, made_from=identity)
    manifest = {
        "command": command(),
        "config": config.model_dump(mode="json"),
        "seed": seed,
        "bank_hash": bank.content_hash,
        "hash": predictor.content_hash,
        "train_curves": len(rows["train"]),
        **{name: state[name] for name in ("epoch", "best_epoch", "best_score")},
        "cpu_s_per_worker": round(state["cpu_s"], 1),
        "versions": versions(),
        "processor": platform.machine(),
    }
    history.write(state["rows"])
    write_json(directory / MANIFEST_FILE, manifest)
    shutil.rmtree(directory / name, ignore_errors=True)
    if storage is not None:
        storage.delete(name)
    return predictor


class _Trainer(TorchTrainer):
    """Ray Train's, without its cleaner of placement groups, and patient with what a killed driver left.

    The cleaner asks Ray's state API, which a Ray without a dashboard does not answer: every training
    would end with a wait of 12 s. Our placement group goes with the driver's job in any case.

    The controller of a driver that was killed a moment ago may still remove the checkpoint that ours has
    just found in the list: then the list is read again, once.
    """

    def fit(self) -> Result:
        """See Ray Train."""
        try:
            return super().fit()
        except ControllerError:
            time.sleep(LEFT_BEHIND_S)
            return super().fit()

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        return [callback for callback in callbacks if not isinstance(callback, PlacementGroupCleanerCallback)]


def _train_worker(loop: dict[str, Any]) -> None:
    """What each Ray Train worker runs."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)  # the same sums on every machine
    config = PredictorConfig.model_validate(loop["config"])
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    training = FlowTraining(config, loop["train_CL"], loop["seed"], get_device())
    started_s, before_s = time.process_time(), 0.0
    history: History = loop["history"]
    rows: list[dict[str, float]] = []
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / STATE_FILE, weights_only=True)
        training.load_state_dict(state)
        before_s, rows = state["cpu_s"], state["rows"]
    if rank == 0:
        history.publish(rows)
    while not training.is_over:
        row: dict[str, float] = {"loss": training.run_epoch(rank, world_size)}
        # Every rank holds the same weights, and so finds the same best epoch and the same end.
        predictor = make_predictor(config, training.average, loop["seed"])
        row["validation_mae"] = validation_error(predictor, loop["validation_CL"], config.target_fractions)
        row["best_epoch"] = training.keep_if_best(row["validation_mae"])
        if rank > 0:
            ray.train.report(row)
            continue
        rows.append({"step": training.epoch, **row})
        history.publish(rows)
        cpu_s = before_s + time.process_time() - started_s
        with tempfile.TemporaryDirectory() as folder:
            torch.save({**training.state_dict(), "cpu_s": cpu_s, "rows": rows}, Path(folder) / STATE_FILE)
            ray.train.report(row, checkpoint=Checkpoint.from_directory(folder))


@contextmanager
def _train_environment() -> Iterator[None]:
    """Set Ray Train's intervals where the user has not, and silence its logger."""
    added = [name for name in TRAIN_ENVIRONMENT if name not in os.environ]
    os.environ.update({name: TRAIN_ENVIRONMENT[name] for name in added})
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _followed(history: History, epochs: int, progress: Report) -> Iterator[None]:
    """Report how many epochs are done while the block runs."""
    reported = 0

    def follow() -> None:
        nonlocal reported
        with contextlib.suppress(MachineError):  # of the storage; the worker will say so if it lasts
            done = history.num_rows()
            if done > reported:
                reported = done
                progress(done, epochs, "epochs")

    with every(FOLLOW_SECONDS, follow):
        yield
