"""A reinforcement-learning problem: deep Q-learning from a random player's frames (Mnih et al. 2015).

The frames are fixed, so the curve is the Huber loss of the temporal-difference error on them. With
double Q-learning (van Hasselt et al. 2016) the model picks the next action and the target network
values it. The target network follows the model by Polyak averaging. Axis letters: N frames, B frames
of a mini-batch, A actions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from mara_ray.curves.datasets.atari import Play, load_memory
from mara_ray.curves.models.control import MemoryNet


class MemoryDQN:
    """Q-learning on the memory of an Atari machine."""

    def __init__(
        self, hyperparameters: dict[str, Any], rng: np.random.Generator, device: str, data_folder: Path
    ) -> None:
        self.hyperparameters = hyperparameters
        play = load_memory(hyperparameters["game"])
        num_steps, discount = hyperparameters["num_steps"], hyperparameters["discount"]
        reward_N, going_on_N = n_step_rewards(play, num_steps, discount)
        rows = rng.permutation(len(reward_N))[: hyperparameters["examples"]]
        self.frame, self.next_frame = self._to(device, play.frame[rows], play.frame[rows + num_steps])
        self.action_N1, self.reward_N = self._to(device, play.action_N[rows, None], reward_N[rows])
        (self.next_weight_N,) = self._to(device, (going_on_N * discount**num_steps)[rows].astype(np.float32))
        self.model = MemoryNet(hyperparameters, play.frame.shape[1:], play.num_actions).to(device)
        self.target = copy.deepcopy(self.model).requires_grad_(False)

    @staticmethod
    def _to(device: str, *arrays: np.ndarray) -> list[torch.Tensor]:
        return [torch.from_numpy(array).to(device) for array in arrays]

    def losses(self, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """The loss of one mini-batch, to descend on; the target network then follows."""
        rows = torch.randint(len(self.reward_N), (self.hyperparameters["batch_size"],)).to(self.frame.device)
        value_BA = self.model(self.frame[rows])
        with torch.no_grad():
            next_value_BA = self.target(self.next_frame[rows])
            chooser_BA = (
                self.model(self.next_frame[rows]) if self.hyperparameters["double"] else next_value_BA
            )
            best_B = next_value_BA.gather(1, chooser_BA.argmax(1, keepdim=True)).squeeze(1)
            goal_B = self.reward_N[rows] + self.next_weight_N[rows] * best_B
        loss = functional.smooth_l1_loss(value_BA.gather(1, self.action_N1[rows]).squeeze(1), goal_B)
        self._last_loss = loss.detach()
        yield loss
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.model.parameters(), strict=True):
                slow.lerp_(fast, self.hyperparameters["polyak"])

    def reading(self) -> float:
        """The loss of the last mini-batch."""
        return float(self._last_loss)

    def untrained_reading(self, rng: np.random.Generator, num_batches: int) -> float:
        """The mean loss of some mini-batches, without learning from them."""
        with torch.no_grad():
            return float(np.mean([float(next(self.losses(rng))) for _ in range(num_batches)]))

    def state_dict(self) -> dict[str, Any]:
        """The target network."""
        return {"target": self.target.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.target.load_state_dict(state["target"])


def n_step_rewards(play: Play, num_steps: int, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """What the next steps bring from each frame: discounted rewards until the episode's end.

    Returns:
        float32 (N - num_steps,) rewards, and bool whether the episode goes on after those steps.
    """
    length = len(play.reward_N) - num_steps
    reward_N = np.zeros(length, np.float32)
    going_on_N = np.ones(length, bool)
    for step in range(num_steps):
        reward_N += discount**step * going_on_N * play.reward_N[step : step + length]
        going_on_N &= ~play.ended_N[step : step + length]
    return reward_N, going_on_N
