"""W&B and TensorBoard: one run per stage, grouped by the cell of a sweep or the hash of the configuration.

The metrics file of a stage (one JSON object a line) is the only source. A thread follows it while
the stage runs, so both dashboards are live; a resumed stage logs the file again from its first line,
so both are complete after an interrupt. What an interrupted stage left of its offline W&B run goes
when the stage is logged again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tensorboardX import SummaryWriter

from mara_ray.background import every
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


@dataclass(frozen=True)
class Place:
    """Where and under which names a stage is logged.

    Attributes:
        folder: holds tensorboard/ and wandb/.
        group: W&B group.
        board: the stage's folder below tensorboard/.
        name: of the W&B run.
        factors: what is varied, by name; part of the W&B configuration, which runs can be grouped by.
    """

    folder: Path
    group: str
    board: str
    name: str
    factors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Product:
    """What a stage made, for the artifacts of W&B.

    Attributes:
        kind: bank, predictor, forecasts, workloads, policy or result; the type of the artifact.
        content_hash: of its files; kind and hash are the artifact's name.
        files: referred to, not copied.
        made_from: hashes of what it was made from, by kind.
    """

    kind: str
    content_hash: str
    files: tuple[Path, ...]
    made_from: Mapping[str, str]


@dataclass
class Logged:
    """What a stage adds to its logs: its summary, and what it made."""

    summary: dict[str, Any] = field(default_factory=dict)
    product: Product | None = None


@contextmanager
def tracked(config: RunConfig, stage: str, place: Place, metrics: dict[str, Path]) -> Iterator[Logged]:
    """Track one stage.

    Args:
        config: logged whole.
        stage: the job type.
        place: where and under which names.
        metrics: metrics files to follow, by the prefix of their names in the dashboards.

    Yields:
        What the stage puts in ends up in the logs.
    """
    board = place.folder / "tensorboard" / place.board
    shutil.rmtree(board, ignore_errors=True)
    logged = Logged()
    with SummaryWriter(str(board)) as writer, _wandb_run(config, stage, place) as wandb_run:
        follower = _Follower(metrics, writer, wandb_run)
        try:
            with every(FOLLOW_SECONDS, follower.log_new_lines):
                yield logged
        finally:
            follower.log_new_lines()
            for name, value in logged.summary.items():
                if isinstance(value, int | float):
                    writer.add_scalar(f"summary/{name}", value, 0)
            if wandb_run is not None:
                wandb_run.summary.update(logged.summary)
                if logged.product is not None:
                    _log_artifact(wandb_run, logged.product)


@contextmanager
def _wandb_run(config: RunConfig, stage: str, place: Place) -> Iterator[Any]:
    mode = wandb_mode(config.tracking)
    if mode == "disabled":
        yield None
        return
    import wandb  # a second of import time, only where it is used

    directory = place.folder.absolute()
    (directory / "wandb").mkdir(parents=True, exist_ok=True)
    unfinished = directory / "unfinished" / place.board
    if unfinished.is_file():  # killed or interrupted: it is logged again from its first line
        shutil.rmtree(unfinished.read_text(), ignore_errors=True)
    run = wandb.init(
        project=config.tracking.project,
        group=place.group,
        job_type=stage,
        name=place.name,
        config={**config.model_dump(mode="json"), "factors": dict(place.factors)},
        dir=directory,
        mode=mode,
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
    )
    if mode == "offline":
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(str(Path(run.dir).parent))
    try:
        yield run
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish()
    unfinished.unlink(missing_ok=True)


def _log_artifact(run: Any, product: Product) -> None:
    """Log what was made as `<kind>-<hash>`, with what it was made from: edges online, metadata always."""
    import wandb

    made_from = {kind: f"{kind}-{value}" for kind, value in product.made_from.items()}
    if not run.offline:
        for name in made_from.values():
            with suppress(wandb.errors.CommError, ValueError):  # it was made while W&B was off
                run.use_artifact(f"{name}:latest")
    metadata = {"hash": product.content_hash, "made_from": made_from}
    artifact = wandb.Artifact(f"{product.kind}-{product.content_hash}", type=product.kind, metadata=metadata)
    for path in product.files:
        name = "/".join(path.parts[-2:])  # policies are alike but for their folders
        artifact.add_reference(path.resolve().as_uri(), name=name, checksum=False)
    run.log_artifact(artifact)


class _Follower:
    """Logs the lines of the metrics files."""

    def __init__(self, metrics: dict[str, Path], writer: SummaryWriter, wandb_run: Any) -> None:
        self._metrics = metrics
        self._writer = writer
        self._wandb_run = wandb_run
        self._offsets = dict.fromkeys(metrics, 0)
        if wandb_run is not None:
            for prefix in metrics:
                wandb_run.define_metric(f"{prefix}/step")
                wandb_run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")

    def log_new_lines(self) -> None:
        """Log those that are whole, and have not been logged yet."""
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
