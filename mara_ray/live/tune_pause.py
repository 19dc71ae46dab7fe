"""What Ray Tune takes to pause a trial and resume another, for comparison with `overhead`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune
from ray.tune import RunConfig
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

ITERATIONS = 6


class Turns(FIFOScheduler):
    """Two trials on one CPU: whichever has reported is paused, and the other one goes on.

    Attributes:
        seconds: between a pause and the next result.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._paused_s: float | None = None
        self._last: Any = None

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Pause it."""
        now = time.perf_counter()
        if self._paused_s is not None:
            self.seconds.append(now - self._paused_s)
        self._paused_s, self._last = now, trial
        return str(TrialScheduler.PAUSE)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """The one that has waited."""
        waiting = [t for t in tune_controller.get_trials() if t.status in ("PENDING", "PAUSED")]
        others = [trial for trial in waiting if trial is not self._last]
        return next(iter(others or waiting), None)


class Nothing(tune.Trainable):
    """A trial whose iterations take no time."""

    def setup(self, config: dict[str, Any]) -> None:
        """Nothing."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """An actor may be used again."""
        return True

    def step(self) -> dict[str, Any]:
        """A loss."""
        return {"loss": 1.0}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """A small state."""
        (Path(checkpoint_dir) / "state.npy").write_bytes(bytes(10_000))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing to take up."""


def tune_switch_seconds(folder: Path) -> float:
    """Median seconds from a result to the next trial's result; Ray must be initialised."""
    scheduler = Turns()
    tune.Tuner(
        tune.with_resources(Nothing, {"cpu": 1}),
        param_space={"x": tune.grid_search([0, 1])},
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=True, max_concurrent_trials=1),
        run_config=RunConfig(
            storage_path=str(folder), name="pauses", stop={"training_iteration": ITERATIONS}, verbose=0
        ),
    ).fit()
    return float(np.median(scheduler.seconds))
