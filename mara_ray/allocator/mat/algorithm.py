"""PPO for the Multi-Agent Transformer: RLlib's configuration, and the training of one policy.

A killed training goes on from its last checkpoint (see `checkpoints`), and ends in the same bits; so does
one that loses EnvRunners (see `ppo`). Their number changes how fast the same episodes are played, and in
how large batches, which the last bits depend on.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EPISODE_RETURN_MEAN,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    WEIGHTS_SEQ_NO,
)

from mara_ray.allocator.mat.checkpoints import (
    BEST_FILE,
    Progress,
    append_metrics,
    restore_checkpoint,
    write_checkpoint,
)
from mara_ray.allocator.mat.connectors import TeamBatch
from mara_ray.allocator.mat.env_runner import COMPLETED, DECISIONS, TASKS, BatchedEnvRunner
from mara_ray.allocator.mat.learner import CLIPPED_KEY, KL_KEY, MATLearner
from mara_ray.allocator.mat.module import SHARED, module_of_node, module_spec
from mara_ray.allocator.mat.network import MAT, NetworkShape
from mara_ray.allocator.mat.policy import MATAllocator, is_trained, load_weights, save_weights
from mara_ray.allocator.mat.ppo import SharedPPO
from mara_ray.config import AllocatorConfig, RunConfig
from mara_ray.errors import MachineError, UserError
from mara_ray.pools import check_room, held_cpus
from mara_ray.progress import Report, silent
from mara_ray.seeding import seed_integer
from mara_ray.simulator.decisions import nodes_alike
from mara_ray.simulator.env import NodesEnv, World

Algorithm = Any  # RLlib's own type says Optional of parts that a built algorithm always has
MAX_WEIGHT_SYNCS_IN_FLIGHT = 8  # RLlib drops a sync over the limit, and its default is 1


def train_policy(
    config: RunConfig,
    forecast: str,
    training_seed: int,
    bank_path: Path,
    table_directory: Path,
    directory: Path,
    report: Report = silent,
    prepare: Callable[[], object] | None = None,
) -> None:
    """Train one policy and write it to `directory`; Ray is initialised already.

    Of the policies validated during training, the one with the highest completion on the frozen
    validation episodes is kept, the earliest of equals. A directory that holds a whole policy is left as
    it is.

    Args:
        config: the run's configuration.
        forecast: name of the predictor that filled the table.
        training_seed: which of the policies of this forecast; a path of the run's seed.
        bank_path: the curves.
        table_directory: their forecasts.
        directory: where to.
        report: called after each update.
        prepare: called by every EnvRunner before it reads the curves and forecasts: brings them to its node.

    Raises:
        UserError: the bank or table is missing or damaged, or is not of the forecast named; the cluster
            has no room for the EnvRunners; there is never a choice to learn from.
    """
    if is_trained(directory):
        return
    directory = directory.absolute()  # RLlib takes a relative path for a URI
    torch.set_num_threads(1)  # the tensors are small, and sums must not depend on the number of threads
    directory.mkdir(parents=True, exist_ok=True)
    algorithm = build_algorithm(config, training_seed, bank_path, table_directory, prepare)
    try:
        world: World = algorithm.env_runner.world
        if world.table.name != forecast:
            raise UserError(
                f"forecast: {table_directory} holds the forecasts of {world.table.name!r}, not {forecast!r};"
                " make the table again with `mara predictor train`"
            )
        best = _train(algorithm, config, world, directory, report)
        facts = {
            "forecast": forecast,
            "training_seed": training_seed,
            "update": best.best_update,
            "validation_completion": best.best_completion,
            "bank_hash": world.table.bank_hash,
            "predictor_hash": world.table.predictor_hash,
        }
        network = MAT(network_shape(config))
        load_weights(network, directory / BEST_FILE)
        MATAllocator(network, config.allocator.decision_steps, facts).save(directory)
    finally:
        algorithm.stop()
        shutil.rmtree(algorithm.logdir, ignore_errors=True)


def build_algorithm(
    config: RunConfig,
    training_seed: int,
    bank_path: Path,
    table_directory: Path,
    prepare: Callable[[], object] | None = None,
) -> Algorithm:
    """Build RLlib's PPO with our module, EnvRunner, connector and learner."""
    allocator, simulator = config.allocator, config.simulator
    _check_work(allocator)
    check_room(allocator.num_env_runners, held_cpus())
    steps_per_update = allocator.episodes_per_update * config.workload.episode_steps
    seed = seed_integer(config.seed, "allocator", "network", training_seed)
    connector = TeamBatch(gae_lambda=allocator.gae_lambda, epochs=allocator.epochs, seed=seed)
    env_config = {
        "run": config,
        "bank_path": Path(bank_path),
        "table_directory": Path(table_directory),
        "training_seed": training_seed,
        "prepare": prepare,
    }
    settings: Any = PPOConfig(SharedPPO)
    settings = (
        settings.api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        .environment(NodesEnv, env_config=env_config, disable_env_checking=True)
        .framework("torch")
        .debugging(seed=seed, log_level="ERROR")
        .multi_agent(policies={SHARED}, policy_mapping_fn=module_of_node)
        .rl_module(
            rl_module_spec=module_spec(network_shape(config), simulator.num_nodes, simulator.num_slots)
        )
        .env_runners(
            env_runner_cls=BatchedEnvRunner,
            num_env_runners=allocator.num_env_runners,
            batch_mode="complete_episodes",
            max_requests_in_flight_per_env_runner=MAX_WEIGHT_SYNCS_IN_FLIGHT,
            merge_env_runner_states=False,
            broadcast_env_runner_states=False,
        )
        .learners(
            num_learners=0,
            learner_class=MATLearner,
            learner_connector=lambda observation_space, action_space: connector,
            add_default_connectors_to_learner_pipeline=False,
        )
        .training(
            train_batch_size_per_learner=steps_per_update,
            minibatch_size=min(allocator.minibatch_rows, steps_per_update),
            num_epochs=1,  # `TeamBatch` lays out all epochs
            shuffle_batch_per_epoch=False,
            lr=[[0, allocator.learning_rate], [steps_per_update * allocator.updates, 0.0]],
            gamma=1.0,
            lambda_=allocator.gae_lambda,
            clip_param=allocator.clip,
            use_kl_loss=False,
            vf_loss_coeff=allocator.value_weight,
            entropy_coeff=[[0, allocator.entropy_start], [steps_per_update * allocator.updates, 0.0]],
            grad_clip=allocator.gradient_clip,
            grad_clip_by="global_norm",
        )
    )
    algorithm = settings.build_algo()
    synchronise(algorithm)
    return algorithm


def network_shape(config: RunConfig) -> NetworkShape:
    """The network of a configuration."""
    allocator = config.allocator
    return NetworkShape(
        allocator.width, allocator.num_heads, allocator.num_blocks, nodes_alike(config.simulator)
    )


def synchronise(algorithm: Algorithm) -> None:
    """Give every EnvRunner the learner's weights, and wait until all have them.

    RLlib sends weights without waiting, and may drop them: after building or restoring, remote runners
    could sample with other weights.

    Raises:
        MachineError: a runner does not take the weights.
    """
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}")
    weights = state[COMPONENT_LEARNER]
    reference = ray.put({key: weights[key] for key in (COMPONENT_RL_MODULE, WEIGHTS_SEQ_NO)})

    def take(runner: BatchedEnvRunner) -> int:
        runner.set_state(ray.get(reference))
        return runner.weights_seq_no

    sequences = algorithm.env_runner_group.foreach_env_runner(take)
    if set(sequences) != {weights[WEIGHTS_SEQ_NO]}:
        raise MachineError(
            f"EnvRunners: weights {sequences} in place of {weights[WEIGHTS_SEQ_NO]}; run again"
        )


def _check_work(allocator: AllocatorConfig) -> None:
    """Refuse more EnvRunners than there is work for."""
    num_workloads = math.ceil(allocator.episodes_per_update / allocator.rollouts_per_workload)
    if allocator.num_env_runners > num_workloads:
        raise UserError(
            f"allocator.num_env_runners: {allocator.num_env_runners} EnvRunners would share {num_workloads}"
            " workloads an update; set fewer, or raise allocator.episodes_per_update"
        )


def validate(network: MAT, world: World) -> float:
    """Completion, in percent of all tasks, of greedy decoding on the frozen validation episodes."""
    allocator = MATAllocator(network, world.config.allocator.decision_steps, {})
    workload = world.validation_workload()
    env, num_completed = world.batched(), 0
    env.reset(workload)
    while not env.done:
        _, observation = env.observe()
        num_completed += int(env.simulator.step(allocator.allocate(observation)).num_completed_B.sum())
    return 100.0 * num_completed / max(1, int(workload.num_tasks_B.sum()))


def _train(
    algorithm: Algorithm, config: RunConfig, world: World, directory: Path, report: Report
) -> Progress:
    """Train to the last update, from the latest checkpoint on."""
    allocator, best_path = config.allocator, directory / BEST_FILE
    network = algorithm.get_module(SHARED).network
    progress, started_s = restore_checkpoint(algorithm, directory), time.process_time()
    before_s = 0.0 if progress is None else progress.cpu_s
    if progress is not None:
        synchronise(algorithm)
    else:
        progress = Progress(0, 0, -1.0, 0.0)  # the untrained policy is measured, but is no candidate
        append_metrics(directory, {"step": 0, "validation_completion": validate(network, world)})
    for update in range(progress.update + 1, allocator.updates + 1):
        line = {"step": update} | _metrics(algorithm.train())
        due = update % allocator.validate_every == 0 or update == allocator.updates
        if due:
            network = algorithm.get_module(SHARED).network
            completion = line["validation_completion"] = validate(network, world)
            if completion > progress.best_completion:
                progress = replace(progress, best_update=update, best_completion=completion)
                save_weights(network, best_path)
        cpu_s = before_s + time.process_time() - started_s
        progress = replace(progress, update=update, cpu_s=cpu_s)
        append_metrics(directory, line)
        if due:
            write_checkpoint(algorithm, progress, directory)
        report(update, allocator.updates, f"completion in training {line['train_completion']:.1f} %")
    return progress


def _metrics(result: dict[str, Any]) -> dict[str, float]:
    """One line of metrics.jsonl from RLlib's result."""
    if SHARED not in result.get(LEARNER_RESULTS, {}):
        raise UserError(
            "allocator: no step of a whole update held a choice, so there is nothing to learn; raise"
            " workload.arrival_probability, or have more simulator.num_slots than simulator.num_nodes"
        )
    sampled, learned = result[ENV_RUNNER_RESULTS], result[LEARNER_RESULTS][SHARED]
    return {
        "env_steps": float(sampled[NUM_ENV_STEPS_SAMPLED_LIFETIME]),
        "decisions": float(sampled[DECISIONS]),
        "team_return": float(sampled[EPISODE_RETURN_MEAN]),
        "train_completion": 100.0 * float(sampled[COMPLETED]) / max(1.0, float(sampled[TASKS])),
        "policy_loss": float(learned[POLICY_LOSS_KEY]),
        "value_loss": float(learned[VF_LOSS_KEY]),
        "entropy": float(learned[ENTROPY_KEY]),
        "kl": float(learned[KL_KEY]),
        "clipped": float(learned[CLIPPED_KEY]),
        "gradient_norm": float(learned["gradients_default_optimizer_global_norm"]),
    }
