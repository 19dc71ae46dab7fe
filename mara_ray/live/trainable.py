"""A Ray Tune Trainable as a job: what was written for Tune can be scheduled as it is."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

from ray import tune

from mara_ray.learning_task import LearningTask


class TrainableTask(LearningTask):
    """A block is an iteration of the Trainable; its state is the files of its checkpoint."""

    def __init__(self, trainable: str, config: dict[str, Any], metric: str = "loss") -> None:
        """Make the Trainable.

        Args:
            trainable: module:name of the class.
            config: of the trial.
            metric: the reported value that is the loss.

        Raises:
            TypeError: it is no class of Trainable.
        """
        module, _, name = trainable.rpartition(":")
        kind = getattr(importlib.import_module(module), name)
        if not (isinstance(kind, type) and issubclass(kind, tune.Trainable)):
            raise TypeError(f"{trainable} is no class of ray.tune.Trainable; name one")
        self._trial, self._metric = kind(config=config), metric

    def run_block(self) -> float:
        """One iteration."""
        return float(self._trial.train()[self._metric])

    def state_dict(self) -> dict[str, bytes]:
        """The files that `Trainable.save` writes, by their paths."""
        with tempfile.TemporaryDirectory() as folder:
            self._trial.save(folder)
            files = (path for path in Path(folder).rglob("*") if path.is_file())
            return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    def load_state_dict(self, state: dict[str, bytes]) -> None:
        """Write them again, and restore from there."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in state.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self._trial.restore(folder)
