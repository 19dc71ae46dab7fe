"""The benchmark measures the same work twice: every figure is there, and the bare loops are true copies."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing

from mara_ray.allocator.mat.algorithm import build_algorithm
from mara_ray.allocator.mat.module import SHARED
from mara_ray.errors import UserError
from mara_ray.experiments.bare_loops import lay_out, play_bare, ppo_loss
from mara_ray.experiments.benchmark import measure
from tests.ray.mat_worlds import toy_config

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


def test_every_figure_is_there(toy_world):
    """Positive all of them, but for the difference of two timings of work so small: it is what it says."""
    measured = asdict(measure(toy_config(), *toy_world, rounds=1))
    assert len(measured) == 8
    glue_us = measured.pop("rllib_us_per_env_step")
    per_s = measured["runner_env_steps_per_s"], measured["bare_env_steps_per_s"]
    assert glue_us == pytest.approx(1e6 / per_s[0] - 1e6 / per_s[1])
    for name, value in measured.items():
        # The difference of two times, so briefly measured, may be negative by chance.
        assert np.isfinite(value) and (value > 0 or name == "rllib_us_per_env_step"), name


def test_remote_runners_are_refused(toy_world):
    with pytest.raises(UserError, match="num_env_runners"):
        measure(toy_config("allocator.num_env_runners=1"), *toy_world, rounds=1)


def test_the_bare_loops_do_the_same_work(toy_world):
    """The same decisions as the runner's, and the loss that RLlib's learner has of the same rows."""
    algorithm = build_algorithm(toy_config(), 0, *toy_world)
    try:
        runner, learner = algorithm.env_runner, algorithm.learner_group._learner
        steps, reward_TB = play_bare(runner)
        episodes = runner.sample()
        assert reward_TB.sum() == pytest.approx(int(runner.env.num_completed_B.sum()), abs=1e-6)
        episode_R = np.concatenate([rows for rows, *_ in steps])
        action_RM = np.concatenate([action_RM for _, _, action_RM, *_ in steps])
        for number, episode in zip(np.unique(episode_R), episodes, strict=True):
            for node in range(3):
                actions = episode.agent_episodes[f"node_{node}"].get_actions()
                np.testing.assert_array_equal(actions, action_RM[episode_R == number, node])

        config = toy_config().allocator
        minibatches = lay_out(algorithm, config, episodes)
        total = sum(len(episode) for episode in episodes) * config.epochs
        assert len(minibatches) == -(-total // config.minibatch_rows)
        minibatch, module = minibatches[0], learner.module[SHARED]
        learner.before_gradient_based_update(timesteps={})
        bare = ppo_loss(config, module.network, minibatch)
        targets = module.value_scale.denormalise(minibatch[Postprocessing.VALUE_TARGETS])
        ours = learner.compute_loss_for_module(
            module_id=SHARED,
            config=algorithm.config,
            batch=minibatch | {Postprocessing.VALUE_TARGETS: targets},
            fwd_out=module.forward_train(minibatch),
        )
        assert len(minibatch[Columns.ACTIONS]) == config.minibatch_rows
        torch.testing.assert_close(bare, ours)
    finally:
        algorithm.stop()
