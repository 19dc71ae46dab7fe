"""Networks for control: an actor-critic for CartPole, and heads over an Atari machine's memory or screen.

Axis letters: B states of a mini-batch, D features, H height, W width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class ActorCritic(nn.Module):
    """Policy logits and a value from one body; the policy starts out uniform."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        width = hyperparameters["width"]
        self.body = nn.Sequential(
            nn.Linear(input_shape[0], width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.policy, self.value = nn.Linear(width, num_outputs), nn.Linear(width, 1)
        nn.init.zeros_(self.policy.weight)
        nn.init.zeros_(self.policy.bias)

    def forward(self, observations_B4: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, outputs) and values (B,)."""
        features_BD = self.body(observations_B4)
        return self.policy(features_BD), self.value(features_BD).squeeze(-1)

    def policy_weights(self) -> list[torch.Tensor]:
        """Weight and bias of each layer up to the logits, detached."""
        return [weight.detach() for part in (self.body, self.policy) for weight in part.parameters()]


class MemoryNet(nn.Sequential):
    """Dense layers over the standardised bytes of an Atari machine's memory."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        layers: list[nn.Module] = []
        features = input_shape[0]
        for _ in range(hyperparameters["depth"]):
            layers += [nn.Linear(features, hyperparameters["width"]), nn.ReLU()]
            features = hyperparameters["width"]
        super().__init__(*layers, nn.Linear(features, num_outputs))


class ScreenNet(nn.Sequential):
    """The convolutional network of Mnih et al. (2015) over the last frames of 84x84 pixels."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        width = hyperparameters["width"]
        super().__init__(
            nn.Conv2d(input_shape[0], width, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 7 * 7, 16 * width),
            nn.ReLU(),
            nn.Linear(16 * width, num_outputs),
        )
