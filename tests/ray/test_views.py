"""The views of the simulator: each library's own checks, and the same episodes behind all of them."""

from __future__ import annotations

import importlib
import sys
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from mara_ray.errors import UserError
from mara_ray.simulator.decisions import settled
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.env import NodesEnv, World
from mara_ray.simulator.parallel import ParallelNodes
from mara_ray.simulator.reference import ReferenceSimulator
from mara_ray.simulator.team import TeamEnv
from mara_ray.workload.episodes import Workload
from tests.ray.mat_worlds import toy_config, write_toy_world

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def env_config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("world")
    bank_path, table_directory = write_toy_world(folder, toy_config())
    return {"run": toy_config(), "bank_path": bank_path, "table_directory": table_directory}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_the_team_view(env_config: dict[str, Any]) -> None:
    """By its registered name: without a specification the check does not compare two resets with one seed."""
    env = gym.make("mara_ray.simulator.team:mara_ray/Team-v0", env_config=env_config).unwrapped
    assert env.spec is not None
    check_env(env)


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
    check_multiagent_environments(env)
    assert env.batched.simulator.state.time > 0, "the check gives up in silence on a class it does not know"


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


def test_the_engine_earns_what_the_views_earn(env_config: dict[str, Any]) -> None:
    """The joint actions of a view, given to a bare engine and to the slow one, step by step."""
    env = TeamEnv(env_config)
    carried_out: list[np.ndarray] = []
    engine = env.nodes.batched.simulator
    step = engine.step
    engine.step = lambda action_BM: carried_out.append(action_BM.copy()) or step(action_BM)  # type: ignore
    env.reset(seed=3)
    skipped = len(carried_out) - engine.state.time  # of training episodes without a decision
    assert skipped % engine.episode_steps == 0
    rng, before, rewards, ends = np.random.default_rng(0), engine.state.time, [], []
    terminated = False
    while not terminated:
        _, reward, terminated, _, _ = env.step(rng.integers(0, 7, 3))
        rewards.append(reward)
        ends.append(engine.state.time)
    bare = Simulator(engine.config, engine.episode_steps, engine.replay)
    bare.reset(engine.workload)
    slow = ReferenceSimulator(engine.config, engine.episode_steps, engine.replay, engine.workload, 0)
    earned_T2 = np.array(
        [
            (bare.step(action_1M).reward_B[0], slow.step(action_1M[0].tolist())[0])
            for action_1M in carried_out[skipped:]
        ]
    )
    sums = [earned_T2[first:end].sum(0) for first, end in pairwise([before, *ends])]
    np.testing.assert_allclose(sums, np.array([rewards, rewards]).T, atol=1e-9)
    completed = int((bare.state.outcomes.finished_BJ >= 0).sum())
    assert completed > 0 and earned_T2.sum(0) == pytest.approx(completed, abs=1e-6)


def test_episodes_in_lockstep_earn_what_they_earn_alone(env_config: dict[str, Any]) -> None:
    """Each decision serves the youngest tasks; the rewards of every step, (T, B)."""
    world = World.of_context(env_config)

    def rewards_TB(workload: Workload) -> np.ndarray:
        batched, rewards = world.batched(), []
        batched.reset(workload)
        while not batched.done:
            rows, observation = batched.observe()
            youngest_RK = np.argsort(-observation.task_BK[rows], axis=1, kind="stable")
            rewards.append(batched.step(rows, youngest_RK[:, :3] + 1, observation))
        return np.array(rewards)

    workload = world.draw_training(4, "views")
    together_TB = rewards_TB(workload)
    alone_TB = np.hstack([rewards_TB(workload.take(np.array([episode]))) for episode in range(4)])
    np.testing.assert_array_equal(together_TB, alone_TB)
    assert len(set(together_TB.sum(0).round(6))) > 1, "the episodes differ"


def test_clashes_and_empty_slots_count_as_idle() -> None:
    active_K = np.array([True, False, True])
    assert settled([1, 1, 3], active_K).tolist() == [1, 0, 3]
    assert settled([2, 0, 1], active_K).tolist() == [0, 0, 1]
    assert settled([0, 3, 3], active_K).tolist() == [0, 3, 0]


def test_what_is_no_choice_is_refused(env_config: dict[str, Any]) -> None:
    env = NodesEnv(env_config)
    everyone = dict.fromkeys(env.possible_agents, 0)
    with pytest.raises(UserError, match="reset the environment first"):
        env.step(everyone)
    env.reset(seed=0)
    for wrong in (7, -1):
        with pytest.raises(UserError, match=f"{wrong} of node 1 is no choice; .* 1..6"):
            env.step({**everyone, "node_1": wrong})
    with pytest.raises(UserError, match="None of node 2 is no choice"):
        env.step({"node_0": 0, "node_1": 0})
    while not env.step(everyone)[2]["__all__"]:
        pass
    with pytest.raises(UserError, match="ended at step 80"):
        env.step(everyone)


def test_masks_are_what_the_engine_takes(env_config: dict[str, Any]) -> None:
    """A slot is offered to a node exactly when the engine takes it, at every decision of an episode."""
    env, rng, terminated = TeamEnv(env_config), np.random.default_rng(1), False
    observation, _ = env.reset(seed=1)
    while not terminated:
        mask_MK1 = observation["action_mask"]
        for node, slot in np.ndindex(3, 6):
            action_1M = np.zeros((1, 3), np.int64)
            action_1M[0, node] = slot + 1
            assert mask_MK1[node, slot + 1] == takes(env.nodes.batched.simulator, action_1M)
        action = env.action_space.sample(mask=tuple(mask_MK1))
        assert (mask_MK1[range(3), action] == 1).all()
        observation, _, terminated, _, _ = env.step(rng.permutation(6)[:3] + 1)


def takes(engine: Simulator, action_1M: np.ndarray) -> bool:
    try:
        deepcopy(engine).step(action_1M)
    except UserError:
        return False
    return True


def test_unequal_nodes_may_leave_the_only_task_to_the_last(env_config: dict[str, Any]) -> None:
    run = toy_config("simulator.node_speeds=[1.0, 1.0, 2.0]")
    env = TeamEnv({**env_config, "run": run})
    observation, _ = env.reset(seed=0)
    assert observation["active_BK"].tolist() == [1, 0, 0, 0, 0, 0], "a choice of one task for three nodes"
    assert observation["action_mask"][:, :2].all() and not observation["action_mask"][:, 2:].any()
    env.step(np.array([0, 0, 1]))
    assert env.nodes.batched.simulator.state.outcomes.busy_steps_B[0] > 0


def test_no_one_may_idle_where_tasks_are_enough(env_config: dict[str, Any]) -> None:
    observation, _ = TeamEnv(env_config).reset(seed=1)
    assert observation["active_BK"].sum() > 3 and not observation["action_mask"][:, 0].any()


def test_without_pettingzoo_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "mara_ray.simulator.parallel")
    with pytest.raises(
        UserError, match=r'^pettingzoo: is not installed; run `pip install -e "\.\[views\]"`$'
    ):
        importlib.import_module("mara_ray.simulator.parallel")
