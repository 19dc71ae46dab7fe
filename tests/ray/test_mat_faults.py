"""EnvRunners that are killed change nothing: every update learns from the episodes that are its own."""

import os
import signal
import sys
import time

import pytest
from ray import cloudpickle

from mara_ray.allocator.mat import algorithm as training
from mara_ray.progress import silent
from tests.ray.mat_worlds import OUTPUTS, kill_after_update, start_training, toy_config

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

OVERRIDES = ("allocator.num_env_runners=2", "allocator.updates=5")
RESTART_S = 60
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the runners cannot import a test


def train(toy_world, directory, report=silent):
    config = toy_config(*OVERRIDES)
    training.train_policy(config, "wls", 0, *toy_world, directory, report)
    return {name: (directory / name).read_bytes() for name in OUTPUTS}


@pytest.fixture(scope="module")
def undisturbed(toy_world, tmp_path_factory):
    return train(toy_world, tmp_path_factory.mktemp("undisturbed"))


def test_a_training_with_two_runners_is_the_same_again(toy_world, tmp_path, undisturbed):
    assert train(toy_world, tmp_path) == undisturbed


def test_a_killed_training_with_two_runners_resumes_to_the_same_bits(toy_world, tmp_path, undisturbed):
    kill_after_update(3, start_training(toy_world[0].parent, tmp_path, *OVERRIDES))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000002"]
    assert train(toy_world, tmp_path) == undisturbed


def die_at_the_next_sample(runner):
    """Run in an EnvRunner: the first is killed once it has begun to sample."""
    if runner.worker_index == 1:
        runner.sample = lambda: os.kill(os.getpid(), signal.SIGKILL)


def process_of(runner):
    return os.getpid()


def test_a_killed_runner_is_replaced_and_nothing_is_lost(toy_world, tmp_path, undisturbed, monkeypatch):
    built, updates_in_trainer, processes = [], [], []

    def build(*arguments):
        algorithm = original(*arguments)
        built.append(algorithm)
        local, sample = algorithm.env_runner, algorithm.env_runner.sample

        def noted():
            updates_in_trainer.append((local.weights_seq_no + 1, local.share))
            return sample()

        local.sample = noted
        return algorithm

    def disturb(done, total, text):
        group = built[0].env_runner_group
        if done == 1:  # the first dies at work, in update 2
            processes.extend(group.foreach_env_runner(process_of, local_env_runner=False))
            group.foreach_env_runner(die_at_the_next_sample, local_env_runner=False)
        if done == 2:
            wait_for_restart(built[0], 1)
        if done == 3:  # the second dies between updates 3 and 4
            assert len(group.foreach_env_runner(process_of, local_env_runner=False)) == 2
            os.kill(processes[1], signal.SIGKILL)
        if done == 4:
            wait_for_restart(built[0], 2)
            processes.extend(group.foreach_env_runner(process_of, local_env_runner=False))

    original = training.build_algorithm
    monkeypatch.setattr(training, "build_algorithm", build)
    assert train(toy_world, tmp_path, disturb) == undisturbed
    assert updates_in_trainer == [(2, 0), (4, 1)], "and in updates 3 and 5 the new ones were at work"
    assert len(set(processes)) == 4


def wait_for_restart(algorithm, number):
    """As RLlib does before an update, until the runner is there again."""
    end = time.monotonic() + RESTART_S
    while number not in algorithm.restore_env_runners(algorithm.env_runner_group):
        assert time.monotonic() < end, "the runner was not replaced"
        time.sleep(0.2)
