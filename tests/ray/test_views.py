"""The views of the simulator: each library's own checks, and the same episodes behind all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from mara_ray.simulator.env import NodesEnv
from mara_ray.simulator.parallel import ParallelNodes
from mara_ray.simulator.team import TeamEnv
from tests.ray.mat_worlds import toy_config, write_toy_world

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def env_config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("world")
    bank_path, table_directory = write_toy_world(folder, toy_config())
    return {"run": toy_config(), "bank_path": bank_path, "table_directory": table_directory}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_the_team_view(env_config: dict[str, Any]) -> None:
    check_env(TeamEnv(env_config), skip_render_check=True)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_is_registered_and_plays_what_ships() -> None:
    env = gym.make("mara_ray.simulator.team:mara_ray/Team-v0")
    observation, _ = env.reset(seed=0)
    assert observation["action_mask"].shape == (4, 9)
    assert env.observation_space.contains(observation)
    _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert np.isfinite(reward) and not terminated and not truncated


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pettingzoo_accepts_the_parallel_view(env_config: dict[str, Any]) -> None:
    parallel_api_test(ParallelNodes(env_config), num_cycles=60)
    parallel_seed_test(lambda: ParallelNodes(env_config), num_cycles=20)


def test_rllib_accepts_the_nodes(env_config: dict[str, Any]) -> None:
    env = NodesEnv(env_config)
    env.observation_space = gym.spaces.Dict(env.observation_spaces)
    env.action_space = gym.spaces.Dict(env.action_spaces)
    env._agent_ids = set(env.possible_agents)  # what the check looks for before it checks anything
    check_multiagent_environments(env)


def play(env: Any, choose: Any) -> tuple[float, list[float]]:
    """The reward before the first decision, and after each."""
    _, info = env.reset(seed=3)
    rng, rewards, over = np.random.default_rng(0), [], False
    before = info.get("node_0", info)
    while not over:
        _, reward, ended, _, _ = env.step(choose(env, rng))
        values = [*reward.values()] if isinstance(reward, dict) else [reward]
        rewards.append(float(values[0]))
        over = all(ended.values()) if isinstance(ended, dict) else ended
    return float(before["reward_before"]), rewards


def test_the_same_choices_earn_the_same_in_every_view(env_config: dict[str, Any]) -> None:
    def dictionary(env: Any, rng: np.random.Generator) -> dict[str, int]:
        return dict(zip(env.possible_agents, rng.integers(0, 7, 3).tolist(), strict=True))

    nodes, parallel, team = NodesEnv(env_config), ParallelNodes(env_config), TeamEnv(env_config)
    played = [play(nodes, dictionary), play(parallel, dictionary)]
    played.append(play(team, lambda env, rng: rng.integers(0, 7, 3)))
    assert played[0] == played[1] == played[2]
    before, rewards = played[0]
    completed = int(nodes.batched.num_completed_B[0])
    assert before + sum(rewards) == pytest.approx(completed, abs=1e-6) and completed > 0


def test_clashes_and_empty_slots_count_as_idle(env_config: dict[str, Any]) -> None:
    env = NodesEnv(env_config)
    env.reset(seed=0)
    active = np.flatnonzero(env._observation.active_BK[0]) + 1
    empty = sorted(set(range(1, 7)) - set(active.tolist()))
    assert env._matching({"node_0": active[0], "node_1": active[0], "node_2": active[1]}) == [
        active[0], 0, active[1],
    ]  # fmt: skip
    if empty:
        assert env._matching({"node_0": empty[0], "node_1": 0, "node_2": active[0]}) == [0, 0, active[0]]


def test_masks_tell_what_is_possible(env_config: dict[str, Any]) -> None:
    env = TeamEnv(env_config)
    observation, _ = env.reset(seed=1)
    active_K = observation["active_BK"] > 0
    assert observation["action_mask"].shape == (3, 7)
    assert (observation["action_mask"][:, 1:] == active_K).all() and not observation["action_mask"][
        :, 0
    ].any()
