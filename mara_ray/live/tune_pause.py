"""What Ray Tune takes to pause a trial and resume another, for comparison with `overhead`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune
from ray.tune import RunConfig
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

ITERATIONS = 6


class Turns(FIFOScheduler):
    """Two trials that take all CPUs each: whichever has reported is paused, and the other one goes on.

    Attributes:
        seconds: between a result and the next one, the other trial's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._paused_s: float | None = None
        self._last: Any = None

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Pause it."""
        now = time.perf_counter()
        if self._paused_s is not None and trial is not self._last:
            self.seconds.append(now - self._paused_s)
        self._paused_s, self._last = now, trial
        return str(TrialScheduler.PAUSE)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """The one that has waited."""
        waiting = [t for t in tune_controller.get_trials() if t.status in ("PENDING", "PAUSED")]
        others = [trial for trial in waiting if trial is not self._last]
        return next(iter(others or waiting), None)


class Nothing(tune.Trainable):
    """A trial whose iterations take no time, with a state of `num_bytes`."""

    def setup(self, config: dict[str, Any]) -> None:
        """Make the state."""
        self.state = bytes(config["num_bytes"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """An actor may be used again."""
        return True

    def step(self) -> dict[str, Any]:
        """A loss."""
        return {"loss": 1.0}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the state."""
        (Path(checkpoint_dir) / "state").write_bytes(self.state)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Read the state."""
        self.state = (Path(checkpoint) / "state").read_bytes()


def tune_switch_seconds(num_bytes: int, reuse_actors: bool, folder: Path) -> float:
    """Median seconds from a result to the next trial's result; Ray must be initialised."""
    scheduler, all_cpus = Turns(), ray.cluster_resources()["CPU"]
    tune.Tuner(
        tune.with_resources(Nothing, {"cpu": all_cpus}),
        param_space={"x": tune.grid_search([0, 1]), "num_bytes": num_bytes},
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=reuse_actors),
        run_config=RunConfig(
            storage_path=str(folder),
            name=f"pauses-{num_bytes}-{reuse_actors}",
            stop={"training_iteration": ITERATIONS},
            verbose=0,
        ),
    ).fit()
    return float(np.median(scheduler.seconds))
