"""Sampling and learning in plain loops, without RLlib's objects: what `mara benchmark` measures ours by.

Axis letters: B episodes, M nodes, T steps, R rows (decisions).
They do the work of `BatchedEnvRunner.sample` and of `MATLearner` once more, decision for decision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from torch import Tensor, nn

from mara_ray.allocator.mat.algorithm import network_shape
from mara_ray.allocator.mat.connectors import TeamBatch
from mara_ray.allocator.mat.env_runner import BatchedEnvRunner
from mara_ray.allocator.mat.features import encode
from mara_ray.allocator.mat.learner import ADAM_EPSILON
from mara_ray.allocator.mat.module import SHARED
from mara_ray.allocator.mat.network import MAT
from mara_ray.config import AllocatorConfig, RunConfig
from mara_ray.simulator.decisions import at_rows

Minibatch = dict[str, Any]  # columns of rows; that of the observations is a dictionary itself


def play_bare(runner: BatchedEnvRunner) -> tuple[list[tuple[Any, ...]], np.ndarray]:
    """Play the episodes that `runner.sample` would play next, without RLlib.

    Returns:
        Of every step with a decision: the episodes' numbers, features, actions (R, M), log-probabilities
        (R, M) and values (R,); and the rewards, (T, B).
    """
    workload, uniform_BTM, _ = runner.draw()
    env, network = runner.env, runner.module[SHARED].network
    steps, rewards = [], []
    env.reset(workload)
    for step in range(uniform_BTM.shape[1]):
        rows, observation = env.observe()
        features = encode(at_rows(observation, rows))
        action_RM = np.empty((0, uniform_BTM.shape[2]), np.int64)
        if len(rows):
            tensors = {name: torch.from_numpy(part) for name, part in features.items()}
            decision = network.decide(tensors, torch.from_numpy(uniform_BTM[rows, step]))
            action_RM = decision.action_BM.numpy()
            steps.append((rows, features, action_RM, decision.logp_BM.numpy(), decision.value_B.numpy()))
        rewards.append(env.step(rows, action_RM, observation))
    return steps, np.stack(rewards)


def lay_out(algorithm: Any, allocator: AllocatorConfig, episodes: list[Any]) -> list[Minibatch]:
    """The minibatches of one update, as RLlib cuts them: the last is filled up from the front."""
    module = algorithm.learner_group._learner.module
    connector = TeamBatch(gae_lambda=allocator.gae_lambda, epochs=allocator.epochs, seed=0)
    batch = connector(rl_module=module, batch={}, episodes=episodes)[SHARED]
    batch[Postprocessing.VALUE_TARGETS] = module[SHARED].value_scale.normalise(
        batch[Postprocessing.VALUE_TARGETS]
    )
    size, num_rows = algorithm.config.minibatch_size, len(batch[Columns.ACTIONS])

    def cut(columns: Minibatch, start: int) -> Minibatch:
        index = torch.arange(start, start + size) % num_rows
        return {
            name: cut(column, start) if isinstance(column, dict) else column[index]
            for name, column in columns.items()
        }

    return [cut(batch, start) for start in range(0, num_rows, size)]


def learn_bare(config: RunConfig, minibatches: list[Minibatch]) -> None:
    """As many minibatch steps with a fresh network in a plain PyTorch loop."""
    allocator, network = config.allocator, MAT(network_shape(config))
    parameters = list(network.parameters())
    optimizer = torch.optim.Adam(parameters, lr=allocator.learning_rate, eps=ADAM_EPSILON)
    for minibatch in minibatches:
        optimizer.zero_grad()
        ppo_loss(allocator, network, minibatch).backward()
        nn.utils.clip_grad_norm_(parameters, allocator.gradient_clip)
        optimizer.step()


def ppo_loss(allocator: AllocatorConfig, network: MAT, minibatch: Minibatch) -> Tensor:
    """The loss of `MATLearner`, whose targets are normalised already."""
    scored = network.evaluate(minibatch[Columns.OBS], minibatch[Columns.ACTIONS])
    ratio_BM = (scored.logp_BM - minibatch[Columns.ACTION_LOGP]).exp()
    advantage_B1 = minibatch[Postprocessing.ADVANTAGES][:, None]
    clipped_BM = ratio_BM.clamp(1 - allocator.clip, 1 + allocator.clip)
    gain_BM = torch.minimum(ratio_BM * advantage_B1, clipped_BM * advantage_B1)
    gain_BM = gain_BM + allocator.entropy_start * scored.entropy_BM
    gain = torch.where(scored.free_BM, gain_BM, 0.0).sum() / scored.free_BM.sum().clamp_min(1)
    value_loss = (scored.value_B - minibatch[Postprocessing.VALUE_TARGETS]).square().mean()
    return allocator.value_weight * value_loss - gain
