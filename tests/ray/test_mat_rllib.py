"""The transformer's RLlib parts: rows, probabilities, returns and minibatches are what PPO needs."""

import json

import numpy as np
import pytest
import ray
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN, LEARNER_RESULTS

from mara_ray.allocator.mat.algorithm import build_algorithm, train_policy
from mara_ray.allocator.mat.connectors import TeamBatch, team_advantages
from mara_ray.allocator.mat.env_runner import COMPLETED
from mara_ray.allocator.mat.module import SHARED, ValueScale
from mara_ray.errors import UserError
from mara_ray.simulator.env import NodesEnv, World, agent_names
from tests.ray.mat_worlds import toy_config

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture(scope="module")
def algorithm(toy_world):
    built = build_algorithm(toy_config(), 0, *toy_world)
    yield built
    built.stop()


@pytest.fixture(scope="module")
def episodes(algorithm):
    return algorithm.env_runner.sample()


def batch_of(algorithm, episodes, epochs=1):
    connector = TeamBatch(gae_lambda=0.9, epochs=epochs, seed=0)
    module = algorithm.learner_group._learner.module
    return connector(rl_module=module, batch={}, episodes=episodes)[SHARED]


def test_rollout_and_learner_log_probabilities_agree(algorithm, episodes):
    batch = batch_of(algorithm, episodes)
    with torch.no_grad():
        module = algorithm.learner_group._learner.module[SHARED]
        scored = module.forward_train(batch)
        values = module.compute_values(batch)
    torch.testing.assert_close(scored[Columns.ACTION_LOGP], batch[Columns.ACTION_LOGP], atol=1e-5, rtol=0)
    assert batch[Columns.ACTION_LOGP].abs().max() > 0.1, "some choice was a real one"
    assert values.shape == batch[Postprocessing.ADVANTAGES].shape


def test_nodes_of_a_step_stay_together_whatever_the_order_of_agents_and_episodes(algorithm, episodes):
    straight = batch_of(algorithm, episodes)
    for episode in episodes:
        episode.agent_episodes = dict(reversed(list(episode.agent_episodes.items())))
    shuffled = batch_of(algorithm, episodes[::-1])
    for name in (Columns.ACTIONS, Columns.ACTION_LOGP, Postprocessing.ADVANTAGES):
        assert torch.equal(straight[name], shuffled[name])
    ranks_BK, action_BM = straight[Columns.OBS]["rank"], straight[Columns.ACTIONS]
    chosen_BM = ranks_BK.gather(1, action_BM - 1)
    assert (chosen_BM.diff(dim=1) > 0).all(), "node 0 chose the most urgent, and so on"


def test_returns_are_exact(algorithm):
    """Rewards of the steps passed over are in the rows; with the steps before the first, they are all."""
    runner = algorithm.env_runner
    runner.get_metrics()  # what earlier samples logged
    sampled = runner.sample()
    metrics = runner.get_metrics()
    for episode in sampled:
        rewards = {tuple(agent.get_rewards()) for agent in episode.agent_episodes.values()}
        assert len(rewards) == 1, "the team's reward, the same for every node"
    completed = int(runner.env.num_completed_B.sum())
    assert completed > 0
    assert float(metrics[COMPLETED].peek()) == pytest.approx(completed, abs=1e-6)
    in_rows = sum(float(np.sum(episode.agent_episodes["node_0"].get_rewards())) for episode in sampled)
    assert 0 < in_rows <= completed + 1e-6


def test_every_epoch_holds_every_row_once_in_another_order(algorithm, episodes):
    one, three = batch_of(algorithm, episodes), batch_of(algorithm, episodes, epochs=3)
    num_rows = len(one[Postprocessing.ADVANTAGES])
    parts = three[Columns.OBS]["context"].split(num_rows)
    assert len(parts) == 3
    assert not torch.equal(parts[0], parts[1])
    for part in parts:
        assert torch.equal(part.sum(1).sort().values, one[Columns.OBS]["context"].sum(1).sort().values)


def test_minibatches_are_counted_in_time_steps(algorithm):
    """Rows, not agent steps: M times fewer than RLlib would make of agents' rows."""
    steps = []
    learner = algorithm.learner_group._learner
    original = learner._update
    learner._update = lambda batch, **kwargs: steps.append(len(batch[SHARED])) or original(batch, **kwargs)
    result = algorithm.train()
    del learner._update
    config = toy_config().allocator
    rows = result[ENV_RUNNER_RESULTS]["num_decisions"] * config.epochs
    assert len(steps) == -(-rows // config.minibatch_rows)
    assert set(steps) == {config.minibatch_rows}
    assert np.isfinite(result[LEARNER_RESULTS][SHARED]["policy_loss"])
    assert result[ENV_RUNNER_RESULTS][EPISODE_RETURN_MEAN] == pytest.approx(
        result[ENV_RUNNER_RESULTS][COMPLETED] / config.episodes_per_update
    ), "the team's return, once, not once per node"


def test_team_advantages_by_hand():
    rewards, values = np.array([1.0, 0.0, 2.0]), np.array([0.5, 1.0, 1.5])
    deltas = [1.0 + 1.0 - 0.5, 0.0 + 1.5 - 1.0, 2.0 - 1.5]
    expected = [deltas[0] + 0.5 * (deltas[1] + 0.5 * deltas[2]), deltas[1] + 0.5 * deltas[2], deltas[2]]
    np.testing.assert_allclose(team_advantages(rewards, values, 0.5), expected)
    np.testing.assert_allclose(team_advantages(rewards, values, 1.0) + values, [3.0, 2.0, 2.0])


def test_value_scale_round_trip():
    scale, values = ValueScale(), torch.tensor([1.0, 5.0, 9.0])
    assert torch.equal(scale.denormalise(values), values), "no target seen yet"
    scale.update(values)
    normal = scale.normalise(values)
    assert float(normal.mean()) == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(scale.denormalise(normal), values)


def test_two_runners_share_the_episodes_of_one(toy_world):
    """The same episodes and decisions, run by two remote processes; all weights arrive before sampling."""
    built = build_algorithm(toy_config("allocator.num_env_runners=2"), 0, *toy_world)
    try:
        alone = build_algorithm(toy_config(), 0, *toy_world)
        expected = alone.env_runner.sample()
        alone.stop()
        shares = built.env_runner_group.foreach_env_runner(lambda r: r.sample(), local_env_runner=False)
        assert [len(share) for share in shares] == [2, 4], "whole workloads, of two rollouts each"
        for mine, theirs in zip((e for share in shares for e in share), expected, strict=True):
            for agent in agent_names(3):
                np.testing.assert_array_equal(
                    mine.agent_episodes[agent].get_actions(), theirs.agent_episodes[agent].get_actions()
                )
        built.train()
        assert built.train()[ENV_RUNNER_RESULTS]["num_episodes"] == 6
        sequences = built.env_runner_group.foreach_env_runner(lambda r: r.weights_seq_no)
        assert set(sequences) == {2}
    finally:
        built.stop()


def test_the_environment_alone_keeps_rllibs_contract(toy_world):
    """Random legal play: rewards sum to completions, agents and spaces are as declared."""
    config = toy_config()
    env = NodesEnv({"run": config, "bank_path": toy_world[0], "table_directory": toy_world[1]})
    rng = np.random.default_rng(0)
    for seed in range(3):
        observations, infos = env.reset(seed=seed)
        total, done = infos["node_1"]["reward_before"], False
        while not done:
            assert list(observations) == agent_names(3)
            assert env.observation_spaces["node_0"].contains(observations["node_0"])
            active = np.flatnonzero(observations["node_0"]["active_BK"]) + 1
            slots = rng.permutation(active)[:3]
            joint = dict(zip(agent_names(3), np.pad(slots, (0, 3 - len(slots))), strict=True))
            observations, rewards, terminated, truncated, _ = env.step(joint)
            total += rewards["node_2"]
            done = terminated["__all__"]
            assert not truncated["__all__"]
        assert total == pytest.approx(env.batched.num_completed_B.sum(), abs=1e-6)


def test_a_table_of_another_predictor_is_refused(toy_world, tmp_path):
    with pytest.raises(UserError, match="not 'fm'"):
        train_policy(toy_config(), "fm", 0, *toy_world, tmp_path / "policy")


def test_a_split_without_curves_is_named(toy_world):
    with pytest.raises(UserError, match="missing"):
        World.load(toy_config(), toy_world[0].with_name("none.parquet"), toy_world[1])


def test_metrics_have_one_line_an_update(toy_world, tmp_path):
    train_policy(toy_config("allocator.updates=3"), "wls", 0, *toy_world, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert [("validation_completion" in line) for line in lines] == [True, False, True, True]


def test_training_episodes_are_light_and_heavy_in_turn(toy_world):
    config = toy_config("workload.episode_steps=400", "allocator.load_factors=[0.5, 2.0]")
    world = World.load(config, *toy_world)
    num_tasks_B = world.draw_training(40, "a", 3).num_tasks_B
    assert num_tasks_B[0::2].max() < num_tasks_B[1::2].min(), "30 and 120 tasks are expected"
    np.testing.assert_array_equal(num_tasks_B[:7], world.draw_training(7, "a", 3).num_tasks_B)
    assert (world.draw_training(40, "a", 4).num_tasks_B != num_tasks_B).any()


def test_a_world_without_choices_is_refused(toy_world, tmp_path):
    with pytest.raises(UserError, match=r"more simulator\.num_slots than simulator\.num_nodes"):
        train_policy(toy_config("simulator.num_slots=3"), "wls", 0, *toy_world, tmp_path)


def test_more_runners_than_room_are_refused(toy_world, tmp_path):
    config = toy_config("allocator.num_env_runners=3")
    with pytest.raises(UserError, match=r"allocator\.num_env_runners: 3 EnvRunners need a CPU each"):
        train_policy(config, "wls", 0, *toy_world, tmp_path)


def test_more_runners_than_workloads_are_refused(toy_world, tmp_path):
    config = toy_config("allocator.num_env_runners=2", "allocator.rollouts_per_workload=6")
    with pytest.raises(UserError, match=r"2 EnvRunners would share 1 workloads an update"):
        train_policy(config, "wls", 0, *toy_world, tmp_path)


def test_a_policy_trains_inside_a_ray_task(toy_world, tmp_path):
    @ray.remote(num_cpus=1)
    def train(runners):
        config = toy_config("allocator.updates=1", f"allocator.num_env_runners={runners}")
        train_policy(config, "wls", 0, *toy_world, tmp_path / str(runners))

    ray.get(train.remote(0))
    ray.get(train.remote(1))
    weights = [(tmp_path / str(runners) / "metrics.jsonl").read_bytes() for runners in (0, 1)]
    assert weights[0] == weights[1], "where an episode is played does not matter"
    with pytest.raises(UserError, match="has 1 beside the trainer's"):
        ray.get(train.remote(2))
