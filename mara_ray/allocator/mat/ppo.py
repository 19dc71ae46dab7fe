"""RLlib's PPO, except that an update learns from the same episodes whatever happens to the EnvRunners.

RLlib fills up the share of a lost EnvRunner with more episodes of the others. Here the share itself is
played again, by the trainer, to the same bits; RLlib meanwhile restarts the runner, which joins in once
it has the update's weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ray.rllib.algorithms.ppo import PPO
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)

from mara_ray.allocator.mat.env_runner import BatchedEnvRunner
from mara_ray.allocator.mat.module import SHARED


class Share(NamedTuple):
    """One EnvRunner's part of an update: its number, its episodes, and what RLlib logs of them."""

    number: int
    episodes: list[MultiAgentEpisode]
    metrics: Any


class SharedPPO(PPO):
    """Samples every share of an update exactly once, with the update's weights."""

    learner_group: LearnerGroup  # RLlib's own types say Optional

    def training_step(self) -> None:
        """Sample, learn, and send the new weights out."""
        shares = self._sample()
        self.metrics.aggregate([share.metrics for share in shares], key=ENV_RUNNER_RESULTS)
        episodes = [episode for share in shares for episode in share.episodes]
        if not episodes:
            return
        sampled = self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME))
        results = self.learner_group.update(
            episodes=episodes,
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: sampled},
            num_epochs=self.config.num_epochs,
            minibatch_size=self.config.minibatch_size,
            shuffle_batch_per_epoch=self.config.shuffle_batch_per_epoch,
        )
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, policies=[SHARED], inference_only=True
        )

    def _sample(self) -> list[Share]:
        """All shares, in the order of their numbers."""
        local: BatchedEnvRunner = self.env_runner
        sequence = local.weights_seq_no

        def play(runner: BatchedEnvRunner) -> Share | None:
            if runner.weights_seq_no != sequence:
                return None  # restarted since, or a message was lost
            return Share(runner.share, runner.sample(), runner.get_metrics())

        answers = self.env_runner_group.foreach_env_runner(play, local_env_runner=False)
        shares = {share.number: share for share in answers if share is not None}
        for number in range(local.num_shares):
            if number not in shares:
                local.share = number
                shares[number] = Share(number, local.sample(), local.get_metrics())
        return [shares[number] for number in range(local.num_shares)]
