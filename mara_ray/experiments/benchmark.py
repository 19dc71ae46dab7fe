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

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from mara_ray import pretrained
from mara_ray.allocator.mat.algorithm import build_algorithm
from mara_ray.allocator.mat.env_runner import BatchedEnvRunner
from mara_ray.allocator.mat.module import SHARED, module_of_node
from mara_ray.config import RunConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.experiments.bare_loops import lay_out, learn_bare, play_bare
from mara_ray.experiments.cluster import connect
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import Report, silent
from mara_ray.simulator.env import NodesEnv

SETTING = (  # what is measured, unless it is overridden: B = 64, M = 4, K = 8, all in one process
    "allocator.episodes_per_update=64",
    "allocator.num_env_runners=0",
    "simulator.num_nodes=4",
    "simulator.num_slots=8",
)
ROUNDS = 8
STOCK_EPISODES = 4  # RLlib's own runner steps so many environments side by side
STOCK_HIDDEN = [8]  # its module: one layer of so many units


@dataclass(frozen=True)
class Benchmark:
    """Speeds, each the best that was measured.

    Attributes:
        bare_env_steps_per_s: simulator, features and network in a plain loop.
        runner_env_steps_per_s: `BatchedEnvRunner.sample`.
        runner_over_bare: the ratio of the two.
        rllib_us_per_env_step: what RLlib and our glue to it add, microseconds an env-step; as the difference
            of two measurements it may come out below 0.
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
        rounds: times that everything is measured twice; the best counts.
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
        work: dict[str, Callable[[], float]] = {
            "bare": lambda: seconds_of(lambda: play_bare(runner)),
            "runner": lambda: seconds_of(runner.sample),
            "stock": lambda: seconds_of_step(stock),
            "bare_learner": lambda: seconds_of(lambda: learn_bare(config, minibatches)),
            "learner": lambda: seconds_of(lambda: learn(algorithm, episodes)),
        }
        best = dict.fromkeys(work, float("inf"))
        for number in range(rounds):
            for name in (*work, *reversed(work)):  # there and back: neither of two always follows the other
                runner.set_state(weights)  # of number 0: the next episodes are the first again
                best[name] = min(best[name], work[name]())
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


def learn(algorithm: Any, episodes: list[Any]) -> None:
    """One update through RLlib, as `PPO.training_step` asks for it."""
    algorithm.learner_group.update(
        episodes=episodes,
        timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 0},
        num_epochs=1,
        minibatch_size=algorithm.config.minibatch_size,
        shuffle_batch_per_epoch=False,
    )
