"""W&B and TensorBoard: one run per stage, grouped by the hash of the configuration.

The metrics file of a stage (one JSON object a line) is the only source. A thread follows it while
the stage runs, so both dashboards are live; a resumed stage logs the file again from its first line,
so both are complete after an interrupt.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from tensorboardX import SummaryWriter

from mara_ray.artifacts import hash_of
from mara_ray.config import RunConfig, TrackingConfig
from mara_ray.errors import UserError

FOLLOW_SECONDS = 1.0
Mode = Literal["online", "offline", "disabled"]
MODES: tuple[Mode, ...] = ("online", "offline", "disabled")


def wandb_mode(tracking: TrackingConfig) -> Mode:
    """The W&B mode that the configuration, the environment and the keys at hand come to.

    An explicit setting wins, then WANDB_MODE, then online if there is an API key, else offline:
    never a prompt.

    Raises:
        UserError: WANDB_MODE holds no such mode.
    """
    if tracking.wandb != "auto":
        return tracking.wandb
    if asked := os.environ.get("WANDB_MODE"):
        for mode in MODES:
            if asked == mode:
                return mode
        raise UserError(f"WANDB_MODE: {asked!r} is unknown; use one of {', '.join(MODES)}, or unset it")
    netrc = Path.home() / ".netrc"
    has_key = bool(os.environ.get("WANDB_API_KEY")) or (netrc.is_file() and "wandb" in netrc.read_text())
    return "online" if has_key else "offline"


@contextmanager
def tracked(
    config: RunConfig, run_directory: Path, stage: str, metrics: dict[str, Path]
) -> Iterator[dict[str, Any]]:
    """Track one stage.

    Args:
        config: logged whole; its hash is the group.
        run_directory: holds tracking/tensorboard/<stage> and tracking/wandb.
        stage: the job type.
        metrics: metrics files to follow, by the prefix of their names in the dashboards.

    Yields:
        A dictionary; what the stage puts in becomes the run's summary.
    """
    board = run_directory / "tracking" / "tensorboard" / stage
    shutil.rmtree(board, ignore_errors=True)
    summary: dict[str, Any] = {}
    with SummaryWriter(str(board)) as writer, _wandb_run(config, run_directory, stage) as wandb_run:
        follower = _Follower(metrics, writer, wandb_run)
        follower.start()
        try:
            yield summary
        finally:
            follower.finish()
            numbers = {name: value for name, value in summary.items() if isinstance(value, int | float)}
            for name, value in numbers.items():
                writer.add_scalar(f"summary/{name}", value, 0)
            if wandb_run is not None:
                wandb_run.summary.update(summary)


@contextmanager
def _wandb_run(config: RunConfig, run_directory: Path, stage: str) -> Iterator[Any]:
    mode = wandb_mode(config.tracking)
    if mode == "disabled":
        yield None
        return
    import wandb  # a second of import time, only where it is used

    directory = run_directory.absolute() / "tracking"
    (directory / "wandb").mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=config.tracking.project,
        group=hash_of(config.model_dump(mode="json")),
        job_type=stage,
        name=f"{config.name}-{stage}",
        config=config.model_dump(mode="json"),
        dir=directory,
        mode=mode,
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
    )
    try:
        yield run
    finally:
        run.finish()


class _Follower(threading.Thread):
    """Logs each new line of the metrics files until told to finish."""

    def __init__(self, metrics: dict[str, Path], writer: SummaryWriter, wandb_run: Any) -> None:
        super().__init__(daemon=True)
        self._metrics = metrics
        self._writer = writer
        self._wandb_run = wandb_run
        self._offsets = dict.fromkeys(metrics, 0)
        self._stop_event = threading.Event()
        if wandb_run is not None:
            for prefix in metrics:
                wandb_run.define_metric(f"{prefix}/step")
                wandb_run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")

    def run(self) -> None:
        while not self._stop_event.wait(FOLLOW_SECONDS):
            self._log_new_lines()

    def finish(self) -> None:
        """Log what is left and stop."""
        self._stop_event.set()
        self.join()
        self._log_new_lines()

    def _log_new_lines(self) -> None:
        for prefix, path in self._metrics.items():
            if not path.is_file():
                continue
            with open(path, "rb") as file:
                file.seek(self._offsets[prefix])
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._offsets[prefix] += len(line)
                    self._log(prefix, json.loads(line))

    def _log(self, prefix: str, row: dict[str, Any]) -> None:
        step = int(row["step"])
        numbers = {f"{prefix}/{name}": value for name, value in row.items() if isinstance(value, int | float)}
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        if self._wandb_run is not None:
            self._wandb_run.log(numbers)
