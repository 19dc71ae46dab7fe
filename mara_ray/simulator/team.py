"""The simulator as Gymnasium sees it: one agent, the team. The rules are `NodesEnv`'s.

`gymnasium.make("mara_ray.simulator.team:mara_ray/Team-v0")` makes it. Without arguments it plays training
episodes on the curves that ship, with WLS forecasts; `env_config` is that of `World.of_context`.
Axis letters: M nodes, K slots.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from mara_ray.config import load_config
from mara_ray.simulator.env import NodesEnv


def shipped_env_config() -> dict[str, Any]:
    """The standard preset on the bank that ships."""
    return {"run": load_config("standard")}


class TeamEnv(gym.Env[dict[str, np.ndarray], np.ndarray]):
    """One agent that assigns all nodes at once.

    An action is M choices of 0 (idle) or a slot 1..K. In the order of nodes, the choice of an empty slot or
    of one that is taken already counts as 0: see `decisions.settled`. Observations are those of a node, with
    `action_mask` int8 (M, K + 1), see `choices`. The reward is the team's.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium wants it

    def __init__(self, env_config: dict[str, Any] | None = None) -> None:
        self.nodes = NodesEnv(env_config or shipped_env_config())
        agents = self.nodes.possible_agents
        num_choices = self.nodes.action_spaces[agents[0]].n  # type: ignore[attr-defined]
        self.action_space = gym.spaces.MultiDiscrete([num_choices] * len(agents))
        node_space = self.nodes.observation_spaces[agents[0]]
        assert isinstance(node_space, gym.spaces.Dict)
        mask_space = gym.spaces.MultiBinary([len(agents), num_choices])
        self.observation_space = gym.spaces.Dict({**node_space.spaces, "action_mask": mask_space})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start a fresh training episode; see `NodesEnv.reset`."""
        super().reset(seed=seed)
        observations, infos = self.nodes.reset(seed=seed, options=options)
        first = self.nodes.possible_agents[0]
        return self._masked(observations[first]), infos[first]

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Do one decision and go on to the next."""
        agents = self.nodes.possible_agents
        results = self.nodes.step({agent: int(choice) for agent, choice in zip(agents, action, strict=True)})
        observations, rewards, ended, _, _ = results
        return self._masked(observations[agents[0]]), rewards[agents[0]], ended["__all__"], False, {}

    def _masked(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        mask_K1 = choices(observation)
        return {**observation, "action_mask": np.tile(mask_K1, (len(self.nodes.possible_agents), 1))}


def choices(observation: dict[str, np.ndarray]) -> np.ndarray:
    """What a node may choose before the others have chosen: int8 (K + 1,).

    A slot with a task; and 0, idle, where there are fewer tasks than nodes, so that with unequal nodes the
    choice of who stays idle is open.
    """
    active_K = observation["active_BK"] > 0
    num_nodes = len(observation["node_slot_BM"])
    return np.concatenate([[active_K.sum() < num_nodes], active_K]).astype(np.int8)


gym.register(id="mara_ray/Team-v0", entry_point="mara_ray.simulator.team:TeamEnv")
