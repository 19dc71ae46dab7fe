"""Trials under Ray Tune: run those that are not done, go on after a kill, say how many are finished."""

from __future__ import annotations

import io
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune import ResultGrid, Tuner

from mara_ray.artifacts import hash_of
from mara_ray.background import every
from mara_ray.errors import MachineError, UserError
from mara_ray.progress import Report

MAX_FAILURES = 2  # a trial whose node died starts again so often
TICK_SECONDS = 1.0
ENVIRONMENT = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the sweep at once; it goes on when it is run again
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths in a configuration count from where the user stands
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "60",
}


def run_trials(
    trainable: Callable[..., None],
    shared: Mapping[str, Any],
    trials: list[dict[str, Any]],
    folder: Path,
    name: str,
    report: Report,
    resources: tune.PlacementGroupFactory | None = None,
    max_concurrent: int | None = None,
    is_kept: Callable[[str], bool] = lambda name: True,
) -> ResultGrid:
    """Run trials that are not done; each is one call that reports once.

    Args:
        trainable: called with {"trial": one of `trials`} and what is shared.
        shared: further arguments of all trials.
        trials: their parameters; `name` is that of the trial's folder.
        folder: holds what Tune keeps, in TensorBoard's and JSON's form, too.
        name: of the set of trials; with other parameters it is another set.
        report: progress.
        resources: of a trial; one CPU if not given.
        max_concurrent: trials at a time; as many as there is room for if not given.
        is_kept: whether what a finished trial has made is still there. If one's is not, all are called again.

    Raises:
        UserError: a trial failed by its configuration; the finished ones stay.
        MachineError: it failed by the machine.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the first error is told in one line
    os.environ.update(ENVIRONMENT)
    function = tune.with_parameters(trainable, **shared)
    if resources is not None:
        function = tune.with_resources(function, resources)
    folder = folder.absolute()
    experiment = f"{name}-{hash_of(trials)}"
    if not all(is_kept(name) for name in _finished(folder / experiment)):
        shutil.rmtree(folder / experiment)
    if Tuner.can_restore(str(folder / experiment)):
        tuner = Tuner.restore(str(folder / experiment), trainable=function, resume_errored=True)
    else:
        tuner = Tuner(
            function,
            param_space={"trial": tune.grid_search(trials)},
            tune_config=tune.TuneConfig(
                reuse_actors=True,
                max_concurrent_trials=max_concurrent,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name=experiment,
                storage_path=str(folder),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
            ),
        )
    # Tune prints where its files are, also when it is told to be silent; standard output is for results.
    with _followed(folder / experiment, len(trials), report), redirect_stdout(io.StringIO()):
        results = tuner.fit()
    if results.errors:
        reason = str(results.errors[0]).strip().splitlines()[-1]
        kind, separator, message = reason.partition(f"{UserError.__name__}: ")
        failed = f"sweep: {len(results.errors)} of {len(trials)} trials failed"
        error = UserError if separator else MachineError
        raise error(f"{failed} ({message or kind}); run again to go on from here")
    return results


def _name(trial: Any) -> str:
    return str(trial.config["trial"]["name"])


def _finished(folder: Path) -> list[str]:
    """Names of the trials that have reported."""
    return [path.parent.name for path in folder.glob("*/result.json") if path.stat().st_size > 0]


@contextmanager
def _followed(folder: Path, total: int, report: Report) -> Iterator[None]:
    """Report once a second how many trials have reported."""

    def count() -> None:
        report(len(_finished(folder)), total, "trials")

    with every(TICK_SECONDS, count):
        yield
    count()
