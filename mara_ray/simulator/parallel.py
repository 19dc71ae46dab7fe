"""The simulator as PettingZoo's parallel API sees it: a node each. The rules are `NodesEnv`'s."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from mara_ray.errors import UserError
from mara_ray.simulator.env import NodesEnv
from mara_ray.simulator.team import choices, shipped_env_config

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise UserError('pettingzoo: is not installed; run `pip install -e ".[views]"`') from error

Observations = dict[str, dict[str, Any]]


class ParallelNodes(ParallelEnv[str, dict[str, Any], int]):
    """Agents `node_0`.. choose 0 (idle) or a slot 1..K at the same time; clashes are settled as in `TeamEnv`.

    An observation is {"observation": the arrays of `NodesEnv`, "action_mask": int8 (K + 1,)}.
    """

    metadata = {"name": "mara_ray_nodes_v0", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, env_config: dict[str, Any] | None = None) -> None:
        self.nodes = NodesEnv(env_config or shipped_env_config())
        self.possible_agents = list(self.nodes.possible_agents)
        self.agents: list[str] = []
        self.render_mode = None
        self.action_spaces = dict(self.nodes.action_spaces)
        num_choices = self.action_spaces[self.possible_agents[0]].n  # type: ignore[attr-defined]
        mask_space = gym.spaces.Box(0, 1, (num_choices,), np.int8)
        self.observation_spaces = {
            agent: gym.spaces.Dict({"observation": space, "action_mask": mask_space})
            for agent, space in self.nodes.observation_spaces.items()
        }

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """The same object for an agent at every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """The same object for an agent at every call."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, dict[str, Any]]]:
        """Start a fresh training episode; see `NodesEnv.reset`."""
        self.agents = list(self.possible_agents)
        observations, infos = self.nodes.reset(seed=seed, options=options)
        return self._masked(observations), infos

    def step(
        self, actions: dict[str, int]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Do one decision and go on to the next; at the end of the episode all agents are done."""
        observations, rewards, ended, _, _ = self.nodes.step(actions)
        terminated = dict.fromkeys(self.agents, ended["__all__"])
        truncated = dict.fromkeys(self.agents, False)
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        if ended["__all__"]:
            self.agents = []
        return self._masked(observations), rewards, terminated, truncated, infos

    def _masked(self, observations: dict[str, dict[str, np.ndarray]]) -> Observations:
        return {
            agent: {"observation": arrays, "action_mask": choices(arrays)}
            for agent, arrays in observations.items()
        }
