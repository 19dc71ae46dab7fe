"""How much of the time of sampling and learning is RLlib and our glue, and how much the work itself.

Axis letters: B episodes, M nodes, T steps, R rows (decisions).
The same episodes are played by a bare loop and by our EnvRunner, the same rows learned from by a bare
loop and through RLlib's learner, in turn, so that the machine disturbs both alike. An env-step is one step
of the simulator in one episode, whether it asks for a decision or not. Seconds are those of this process's
CPU: with one thread, those of a clock on an idle machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor, nn

from mara_ray import pretrained
from mara_ray.allocator.mat.algorithm import build_algorithm, network_shape
from mara_ray.allocator.mat.connectors import TeamBatch
from mara_ray.allocator.mat.env_runner import BatchedEnvRunner
from mara_ray.allocator.mat.features import encode
from mara_ray.allocator.mat.learner import ADAM_EPSILON
from mara_ray.allocator.mat.module import SHARED, module_of_node
from mara_ray.allocator.mat.network import MAT
from mara_ray.config import AllocatorConfig, RunConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.experiments.cluster import connect
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import Report, silent
from mara_ray.simulator.decisions import at_rows
from mara_ray.simulator.env import NodesEnv

SETTING = (  # what is measured, unless it is overridden: B = 64, M = 4, K = 8, all in one process
    "allocator.episodes_per_update=64",
    "allocator.num_env_runners=0",
    "simulator.num_nodes=4",
    "simulator.num_slots=8",
)
ROUNDS = 12
STOCK_EPISODES = 4  # RLlib's own runner steps so many environments side by side
STOCK_HIDDEN = [8]  # its module: one layer of so many units


@dataclass(frozen=True)
class Benchmark:
    """Speeds, each of the best round.

    Attributes:
        bare_env_steps_per_s: simulator, features and network in a plain loop.
        runner_env_steps_per_s: `BatchedEnvRunner.sample`.
        runner_over_bare: the ratio of the two.
        rllib_us_per_env_step: what RLlib and our glue to it add, microseconds an env-step.
        stock_default_module_env_steps_per_s: RLlib's MultiAgentEnvRunner on `NodesEnv` with RLlib's default
            module, as small as it gets: `NodesEnv` shows other arrays than our transformer reads. Its
            episodes are of the lightest of the training loads only, so they ask for fewer decisions.
        bare_rows_per_s: the minibatch steps of one update in a plain PyTorch loop, rows learned from.
        learner_rows_per_s: the update through RLlib, with the layout of its rows and the team's GAE.
        learner_over_bare: the ratio of the two.
    """

    bare_env_steps_per_s: float
    runner_env_steps_per_s: float
    runner_over_bare: float
    rllib_us_per_env_step: float
    stock_default_module_env_steps_per_s: float
    bare_rows_per_s: float
    learner_rows_per_s: float
    learner_over_bare: float


def measure_shipped(config: RunConfig, rounds: int = ROUNDS, report: Report = silent) -> Benchmark:
    """Measure on the bank that ships, with WLS forecasts; starts Ray."""
    bank = CurveBank.read(pretrained.BANK)
    target_CG = bank.target_losses(config.workload.target_fractions)
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "wls"
        predictor = WLSPredictor(config.predictor.warmup_points)
        ForecastTable.build(predictor, bank, target_CG, directory, silent)
        return measure(config, pretrained.BANK, directory, rounds, report)


def measure(
    config: RunConfig, bank_path: Path, table_directory: Path, rounds: int = ROUNDS, report: Report = silent
) -> Benchmark:
    """Measure on a bank and its forecasts; starts Ray, and sets PyTorch to one thread as training does.

    Args:
        config: the run's configuration, without remote EnvRunners.
        bank_path: the curves.
        table_directory: their forecasts.
        rounds: times that everything is measured; the best counts.
        report: called after each round.

    Raises:
        UserError: the bank or table is missing or damaged, or there are remote EnvRunners.
    """
    if config.allocator.num_env_runners > 0:
        raise UserError("allocator.num_env_runners: one process is measured; leave it at 0")
    torch.set_num_threads(1)
    connect(config.cluster)
    algorithm = build_algorithm(config, 0, bank_path, table_directory)
    try:
        runner: BatchedEnvRunner = algorithm.env_runner
        stock = stock_runner(config, bank_path, table_directory)
        weights = runner.get_state()
        episodes = runner.sample()  # the first pass also traces the network
        minibatches = lay_out(algorithm, config.allocator, episodes)
        best = {name: float("inf") for name in ("bare", "runner", "stock", "bare_learner", "learner")}
        for number in range(rounds):
            runner.set_state(weights)  # of number 0: the next episodes are the first again
            seconds = {
                "bare": seconds_of(lambda: play_bare(runner)),
                "runner": seconds_of(runner.sample),
                "stock": seconds_of_step(stock),
                "bare_learner": seconds_of(lambda: learn_bare(config, minibatches)),
                "learner": seconds_of(lambda: learn(algorithm, episodes)),
            }
            best = {name: min(best[name], value) for name, value in seconds.items()}
            report(number + 1, rounds, "rounds")
    finally:
        algorithm.stop()
    env_steps = config.allocator.episodes_per_update * config.workload.episode_steps
    rows = sum(len(minibatch[Columns.ACTIONS]) for minibatch in minibatches)
    return Benchmark(
        bare_env_steps_per_s=env_steps / best["bare"],
        runner_env_steps_per_s=env_steps / best["runner"],
        runner_over_bare=best["bare"] / best["runner"],
        rllib_us_per_env_step=1e6 * (best["runner"] - best["bare"]) / env_steps,
        stock_default_module_env_steps_per_s=1 / best["stock"],
        bare_rows_per_s=rows / best["bare_learner"],
        learner_rows_per_s=rows / best["learner"],
        learner_over_bare=best["bare_learner"] / best["learner"],
    )


def seconds_of(work: Callable[[], Any]) -> float:
    """CPU seconds of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


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
        features, action_RM = (
            encode(at_rows(observation, rows)),
            np.empty((0, uniform_BTM.shape[2]), np.int64),
        )
        if len(rows):
            tensors = {name: torch.from_numpy(part) for name, part in features.items()}
            decision = network.decide(tensors, torch.from_numpy(uniform_BTM[rows, step]))
            action_RM = decision.action_BM.numpy()
            steps.append((rows, features, action_RM, decision.logp_BM.numpy(), decision.value_B.numpy()))
        rewards.append(env.step(rows, action_RM, observation))
    return steps, np.stack(rewards)


def stock_runner(config: RunConfig, bank_path: Path, table_directory: Path) -> MultiAgentEnvRunner:
    """RLlib's own runner of several agents on `NodesEnv`."""
    env_config = {"run": config, "bank_path": bank_path, "table_directory": table_directory}
    settings: Any = PPOConfig()
    settings = (
        settings.api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        .environment(NodesEnv, env_config=env_config, disable_env_checking=True)
        .debugging(seed=config.seed, log_level="ERROR")
        .multi_agent(policies={SHARED}, policy_mapping_fn=module_of_node)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=STOCK_HIDDEN))
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=STOCK_EPISODES,
            batch_mode="complete_episodes",
            env_to_module_connector=lambda env, spaces, device: FlattenObservations(multi_agent=True),
        )
    )
    return MultiAgentEnvRunner(config=settings)


def seconds_of_step(stock: MultiAgentEnvRunner) -> float:
    """CPU seconds that the stock runner takes for a step of the simulator, in some whole episodes."""
    finished: list[Any] = []
    seconds = seconds_of(lambda: finished.extend(stock.sample(num_episodes=STOCK_EPISODES)))
    simulators = [env.unwrapped.batched.simulator for env in stock.env.envs]
    begun = sum(simulator.state.time for simulator in simulators if not simulator.done)
    return seconds / (len(finished) * simulators[0].episode_steps + begun)


def lay_out(algorithm: Any, allocator: AllocatorConfig, episodes: list[Any]) -> list[dict[str, Any]]:
    """The minibatches of one update, as RLlib cuts them: the last is filled up from the front."""
    module = algorithm.learner_group._learner.module
    connector = TeamBatch(gae_lambda=allocator.gae_lambda, epochs=allocator.epochs, seed=0)
    batch = connector(rl_module=module, batch={}, episodes=episodes)[SHARED]
    batch[Postprocessing.VALUE_TARGETS] = module[SHARED].value_scale.normalise(
        batch[Postprocessing.VALUE_TARGETS]
    )
    size, num_rows = algorithm.config.minibatch_size, len(batch[Columns.ACTIONS])

    def cut(columns: dict[str, Any], start: int) -> dict[str, Any]:
        index = torch.arange(start, start + size) % num_rows
        return {
            name: cut(column, start) if isinstance(column, dict) else column[index]
            for name, column in columns.items()
        }

    return [cut(batch, start) for start in range(0, num_rows, size)]


def learn(algorithm: Any, episodes: list[Any]) -> None:
    """One update through RLlib, as `PPO.training_step` asks for it."""
    algorithm.learner_group.update(
        episodes=episodes,
        timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 0},
        num_epochs=1,
        minibatch_size=algorithm.config.minibatch_size,
        shuffle_batch_per_epoch=False,
    )


def learn_bare(config: RunConfig, minibatches: list[dict[str, Any]]) -> None:
    """As many minibatch steps with a fresh network in a plain PyTorch loop."""
    allocator, network = config.allocator, MAT(network_shape(config))
    parameters = list(network.parameters())
    optimizer = torch.optim.Adam(parameters, lr=allocator.learning_rate, eps=ADAM_EPSILON)
    for minibatch in minibatches:
        optimizer.zero_grad()
        ppo_loss(allocator, network, minibatch).backward()
        nn.utils.clip_grad_norm_(parameters, allocator.gradient_clip)
        optimizer.step()


def ppo_loss(allocator: AllocatorConfig, network: MAT, minibatch: dict[str, Any]) -> Tensor:
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
