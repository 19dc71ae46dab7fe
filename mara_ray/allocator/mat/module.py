"""The transformer as RLlib's RLModule, and the running scale of its value function.

Axis letters: B rows (one step of one episode each), M nodes.
All nodes share one module, and one forward pass decides for all of them: a batch row holds a whole
time step, so that the nodes of one step stay together.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor, nn

from mara_ray.allocator.mat.features import CONTEXT_FEATURES, NODE_FEATURES, SLOT_FEATURES
from mara_ray.allocator.mat.network import MAT, NetworkShape

SHARED = "shared"  # the one module of all nodes
UNIFORM = "uniform"  # batch column: the random numbers a joint action is drawn with, (B, M)
ENTROPY = "entropy"  # forward_train output: entropy of each node's choice, (B, M)
FREE = "free"  # forward_train output: the node had more than one choice, bool (B, M)
SCALE_DECAY = 0.9
SCALE_FLOOR = 1e-2


class ValueScale(nn.Module):
    """Running mean and spread of the value targets (buffers of shape (1,): RLlib turns 0-d into floats).

    With gamma = 1 returns are large: unscaled, the value loss would drown the policy's.
    """

    mean_1: Tensor
    square_1: Tensor
    weight_1: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean_1", "square_1", "weight_1"):
            self.register_buffer(name, torch.zeros(1))

    def update(self, target_B: Tensor) -> None:
        """Take in one batch of targets."""
        fresh = (target_B.mean(), target_B.square().mean(), torch.ones(()))
        for buffer, value in zip((self.mean_1, self.square_1, self.weight_1), fresh, strict=True):
            buffer.mul_(SCALE_DECAY).add_((1 - SCALE_DECAY) * value)

    def normalise(self, value_B: Tensor) -> Tensor:
        """From units of return to the head's."""
        mean_1, spread_1 = self._moments()
        return (value_B - mean_1) / spread_1

    def denormalise(self, value_B: Tensor) -> Tensor:
        """From the head's units to those of return."""
        mean_1, spread_1 = self._moments()
        return value_B * spread_1 + mean_1

    def _moments(self) -> tuple[Tensor, Tensor]:
        if float(self.weight_1) == 0:
            return torch.zeros_like(self.mean_1), torch.ones_like(self.mean_1)
        mean_1 = self.mean_1 / self.weight_1
        return mean_1, (self.square_1 / self.weight_1 - mean_1.square()).clamp_min(SCALE_FLOOR**2).sqrt()


class MATModule(TorchRLModule, ValueFunctionAPI):
    """The Multi-Agent Transformer; `model_config["shape"]` holds the fields of `NetworkShape`."""

    def setup(self) -> None:
        """Build the network."""
        self.network = MAT(NetworkShape(**self.model_config["shape"]))
        self.value_scale = ValueScale()

    # All forward passes give V as the head does, normalised: scaling it costs as much for a whole sample
    # as for a step. `compute_values` gives it in units of return, as RLlib wants it.

    # These two override RLlib's outer methods: those set every layer to evaluation and back on each
    # call, a tenth of a step's time, and no layer here behaves differently in training.

    def forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Decide greedily."""
        return self._decide(batch[Columns.OBS], None)

    def forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Decide at random, with the batch's random numbers."""
        return self._decide(batch[Columns.OBS], batch[UNIFORM])

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        scored = self.network.evaluate(batch[Columns.OBS], batch[Columns.ACTIONS])
        return {
            Columns.ACTION_LOGP: scored.logp_BM,
            ENTROPY: scored.entropy_BM,
            FREE: scored.free_BM,
            Columns.VF_PREDS: scored.value_B,
        }

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """V(s) in units of return, (B,)."""
        return self.value_scale.denormalise(self.network.encode(batch[Columns.OBS]).value_B)

    def _decide(self, features: dict[str, Tensor], uniform_BM: Tensor | None) -> dict[str, Tensor]:
        decision = self.network.decide(features, uniform_BM)
        return {
            Columns.ACTIONS: decision.action_BM,
            Columns.ACTION_LOGP: decision.logp_BM,
            Columns.VF_PREDS: decision.value_B,
        }


def feature_space(num_nodes: int, num_slots: int) -> gym.spaces.Dict:
    """The space of one row of `features.encode`."""

    def box(*shape: int) -> gym.spaces.Box:
        return gym.spaces.Box(-np.inf, np.inf, shape, np.float32)

    return gym.spaces.Dict(
        {
            "slot": box(num_slots, SLOT_FEATURES),
            "node": box(num_nodes, NODE_FEATURES),
            "context": box(CONTEXT_FEATURES),
            "rank": gym.spaces.MultiDiscrete([num_slots + 1] * num_slots),
            "serving": gym.spaces.MultiDiscrete([num_slots + 1] * num_nodes),
        }
    )


def module_spec(shape: NetworkShape, num_nodes: int, num_slots: int) -> MultiRLModuleSpec:
    """One shared module inside a MultiRLModule."""
    shared = RLModuleSpec(
        module_class=MATModule,
        observation_space=feature_space(num_nodes, num_slots),
        action_space=gym.spaces.Discrete(num_slots + 1),
        model_config={"shape": asdict(shape)},
    )
    return MultiRLModuleSpec(rl_module_specs={SHARED: shared})


def module_of_node(agent_id: str, episode: Any, **kwargs: Any) -> str:
    """RLlib's policy mapping: every node uses the shared module."""
    return SHARED
