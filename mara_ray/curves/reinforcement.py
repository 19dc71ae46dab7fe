"""A reinforcement-learning problem: balance CartPoles by PPO (Schulman et al. 2017).

Neither the policy's nor the critic's loss tells progress, so the curve is the shortfall of the
return: max(0.01, 1 - mean return of the last 60 episodes / longest possible).
Axis letters: S steps of a rollout, N carts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from mara_ray.curves.datasets.control import CartPoles
from mara_ray.curves.models.control import ActorCritic

NUM_RETURNS = 60  # episodes averaged into one reading
LOWEST_READING = 0.01
GAE_LAMBDA = 0.95
CLIP = 0.2
VALUE_WEIGHT = 0.5
# Brings positions, speeds and angles to about unit size.
OBSERVATION_SCALE = np.array([1.0, 1.0, 5.0, 1.0])


class CartPolePPO:
    """PPO on randomised CartPoles; a mini-batch is one short rollout of all carts."""

    def __init__(
        self, hyperparameters: dict[str, Any], rng: np.random.Generator, device: str, data_folder: Path
    ) -> None:
        self.hyperparameters = hyperparameters
        self.device = device
        self.model = ActorCritic(hyperparameters, input_shape=(4,), num_outputs=2).to(device)
        self.carts = CartPoles(hyperparameters["carts"], hyperparameters["max_steps"], rng)
        self.returns: list[int] = []  # of the last episodes, the latest last

    def losses(self, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """Play one rollout, then give PPO's loss on it once per epoch."""
        observations, actions, log_probs, advantages, value_targets = self._rollout(rng)
        for _ in range(self.hyperparameters["epochs"]):
            logits, values = self.model(observations)
            all_log_probs = logits.log_softmax(-1)
            ratio = (all_log_probs.gather(1, actions[:, None]).squeeze(1) - log_probs).exp()
            gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
            entropy = -(all_log_probs.exp() * all_log_probs).sum(-1).mean()
            value_loss = functional.mse_loss(values, value_targets)
            yield VALUE_WEIGHT * value_loss - gain - self.hyperparameters["entropy_weight"] * entropy

    def reading(self) -> float:
        """The shortfall of the return, between 0.01 and 1."""
        shortfall = 1 - np.mean(self.returns or [0]) / self.hyperparameters["max_steps"]
        return float(max(LOWEST_READING, shortfall))

    def untrained_reading(self, rng: np.random.Generator, num_batches: int) -> float:
        """The reading of the untrained policy; its episodes fill the window the curve starts from."""
        before = self.carts.state_dict()
        while len(self.returns) < NUM_RETURNS:
            self._rollout(rng)
        reading = self.reading()
        self.carts.load_state_dict(before)
        return reading

    @torch.no_grad()
    def _rollout(self, rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
        """Observations, actions, log-probabilities, advantages and value targets, S x N rows each."""
        steps, num_carts = self.hyperparameters["rollout_steps"], self.hyperparameters["carts"]
        observation_SN4 = np.empty((steps + 1, num_carts, 4), np.float32)
        action_SN = np.empty((steps, num_carts), np.int64)
        fallen_SN = np.empty((steps, num_carts), bool)
        expired_SN = np.empty((steps, num_carts), bool)
        weights = [weight.cpu().numpy() for weight in self.model.policy_weights()]
        for step in range(steps):
            observation_SN4[step] = self.carts.state_N4 * OBSERVATION_SCALE
            action_SN[step] = rng.random(num_carts) < _probability_right(weights, observation_SN4[step])
            fallen_SN[step], expired_SN[step], length_N = self.carts.step(action_SN[step], rng)
            self.returns += length_N[fallen_SN[step] | expired_SN[step]].tolist()
        self.returns = self.returns[-NUM_RETURNS:]
        observation_SN4[steps] = self.carts.state_N4 * OBSERVATION_SCALE
        observations = torch.from_numpy(observation_SN4).to(self.device)
        logits, values = self.model(observations)
        advantage_SN = _advantages(
            values.cpu().numpy(), fallen_SN, expired_SN, self.hyperparameters["discount"]
        )
        value_target_SN = torch.from_numpy(advantage_SN).to(self.device) + values[:steps]
        advantage_SN = (advantage_SN - advantage_SN.mean()) / (advantage_SN.std() + 1e-6)
        actions = torch.from_numpy(action_SN).to(self.device).flatten()
        log_probs = logits[:steps].log_softmax(-1).flatten(0, 1).gather(1, actions[:, None]).squeeze(1)
        advantages = torch.from_numpy(advantage_SN).to(self.device).flatten()
        return observations[:steps].flatten(0, 1), actions, log_probs, advantages, value_target_SN.flatten()

    def state_dict(self) -> dict[str, Any]:
        """The carts and the last returns."""
        return {"carts": self.carts.state_dict(), "returns": list(self.returns)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.carts.load_state_dict(state["carts"])
        self.returns = list(state["returns"])


def _probability_right(weights: list[np.ndarray], observation_N4: np.ndarray) -> np.ndarray:
    """The policy's probability of pushing right, (N,): in NumPy, where small layers are far quicker."""
    *body, (policy_weight, policy_bias) = zip(weights[::2], weights[1::2], strict=True)
    features_ND = observation_N4
    for weight, bias in body:
        features_ND = np.tanh(features_ND @ weight.T + bias)
    logit_N2 = features_ND @ policy_weight.T + policy_bias
    return 1 / (1 + np.exp(logit_N2[:, 0] - logit_N2[:, 1]))


def _advantages(
    value_SN: np.ndarray, fallen_SN: np.ndarray, expired_SN: np.ndarray, discount: float
) -> np.ndarray:
    """Generalised advantage estimates, float32 (S, N), from values of S + 1 steps.

    The reward of a step is 1 - discount, so that values stay between 0 and 1. An episode that ran
    out of time takes the value of its last seen state for what would have followed.
    """
    steps, num_carts = fallen_SN.shape
    advantage_SN = np.empty((steps, num_carts), np.float32)
    running_N = np.zeros(num_carts, np.float32)
    for step in reversed(range(steps)):
        next_value_N = np.where(expired_SN[step], value_SN[step], value_SN[step + 1])
        next_value_N = np.where(fallen_SN[step], 0, next_value_N)
        error_N = (1 - discount) + discount * next_value_N - value_SN[step]
        goes_on_N = ~(fallen_SN[step] | expired_SN[step])
        running_N = error_N + discount * GAE_LAMBDA * goes_on_N * running_N
        advantage_SN[step] = running_N
    return advantage_SN
