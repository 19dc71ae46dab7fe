"""An RLlib EnvRunner that steps many episodes at once: one network pass a step, episodes built in bulk.

Axis letters: B episodes, M nodes, K slots, T steps, R decisions.
RLlib's MultiAgentEnvRunner handles every agent of every environment in Python; here a step of all
episodes costs a few NumPy calls and one forward pass over those with a decision to make.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import (
    EPISODE_RETURN_MEAN,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    WEIGHTS_SEQ_NO,
)

from mara_ray.allocator.mat.baseline import with_workload_baseline
from mara_ray.allocator.mat.features import Features, encode
from mara_ray.allocator.mat.module import SHARED, UNIFORM, feature_space, module_of_node
from mara_ray.seeding import generator
from mara_ray.simulator.decisions import at_rows
from mara_ray.simulator.env import World, agent_names
from mara_ray.workload.episodes import Workload

COMPLETED, TASKS, DECISIONS = "num_completed", "num_tasks", "num_decisions"  # metrics of one sample()
LARGEST_UNIFORM = np.float32(1 - 1e-6)


class BatchedEnvRunner(EnvRunner, Checkpointable):
    """Samples whole episodes; `env_config` is that of `World.of_context`, and `training_seed`.

    All randomness is keyed by the seed, the number of the weights and that of the episode: a restored
    runner goes on as the old one would have, and several share the episodes that one would run.

    Attributes:
        share: which of the `num_shares` parts of an update's episodes it plays.
        weights_seq_no: the number of the weights it holds, -1 before the first.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.world = World.of_context(self.config.env_config)
        self._training_seed: int = self.config.env_config["training_seed"]
        self.env = self.world.batched()
        self.num_shares = max(1, self.num_workers)
        self.share = max(1, self.worker_index or 1) - 1
        self.weights_seq_no = -1
        allocator = self.world.config.allocator
        self._group_B = np.arange(allocator.episodes_per_update) // allocator.rollouts_per_workload
        self.make_module()

    def make_module(self) -> None:
        """Build the module; its weights arrive with `set_state`."""
        self.module = self.config.get_multi_rl_module_spec(spaces=self.get_spaces()).build()

    def get_spaces(self) -> dict[str, Any]:
        """The spaces of the shared module: features in, a slot out."""
        simulator = self.world.config.simulator
        features = feature_space(simulator.num_nodes, simulator.num_slots)
        action = self.config.rl_module_spec.rl_module_specs[SHARED].action_space
        return {INPUT_ENV_SPACES: (features, action), SHARED: (features, action)}

    def assert_healthy(self) -> None:
        """RLlib's check that the runner is built."""
        assert self.env is not None and self.module is not None

    def sample(self, **kwargs: Any) -> list[MultiAgentEpisode]:
        """Run this runner's share of the update's episodes from start to end; again, they are the same."""
        workload, uniform_BTM, name = self.draw()
        episodes, reward_B = self._run(workload, uniform_BTM, name)
        num_episodes, num_steps, _ = uniform_BTM.shape
        steps = num_episodes * num_steps
        for name, value in (
            (NUM_ENV_STEPS_SAMPLED, steps),
            (NUM_EPISODES, num_episodes),
            (COMPLETED, float(reward_B.sum())),
            (TASKS, int(workload.num_tasks_B.sum())),
            (DECISIONS, sum(len(episode) for episode in episodes)),
        ):
            self.metrics.log_value(name, value, reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum")
        self.metrics.log_value(EPISODE_RETURN_MEAN, float(reward_B.mean()), window=1)  # the team's, once
        return episodes

    def draw(self) -> tuple[Workload, np.ndarray, str]:
        """What the next `sample` runs: this runner's share of the workload, its random numbers, its name.

        Returns:
            The workload of B episodes; float32 (B, T, M) in [0, 1) to draw the actions with; a prefix for
            the names of the episodes.
        """
        config, share, group_B = self.world.config, self._share(), self._group_B
        path = (self._training_seed, self.weights_seq_no)
        num_episodes, num_steps = config.allocator.episodes_per_update, config.workload.episode_steps
        distinct = self.world.draw_training(group_B[-1] + 1, "allocator", "workload", *path)
        workload = distinct.take(group_B[share])
        rng = generator(config.seed, "allocator", "actions", *path)
        uniform_BTM = rng.random((num_episodes, num_steps, config.simulator.num_nodes), np.float32)[share]
        name = "-".join(f"{part:06d}" for part in (*path, share.start))
        return workload, np.minimum(uniform_BTM, LARGEST_UNIFORM), name

    def get_metrics(self) -> Any:
        """What was logged since the last call."""
        return self.metrics.reduce()

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """The module's weights and their number."""
        state: dict[str, Any] = {}
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(**kwargs)
            state[WEIGHTS_SEQ_NO] = self.weights_seq_no
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over weights, unless those held are as new (number 0 forces)."""
        if COMPONENT_RL_MODULE not in state:
            return
        sequence = state.get(WEIGHTS_SEQ_NO, 0)
        if sequence == 0 or sequence > self.weights_seq_no:
            self.module.set_state(state[COMPONENT_RL_MODULE])
            self.weights_seq_no = sequence

    def get_ctor_args_and_kwargs(self) -> tuple[tuple, dict[str, Any]]:
        """How RLlib rebuilds the runner."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """RLlib writes the module by itself."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def _share(self) -> slice:
        """Which of an update's episodes are this runner's: whole workloads."""
        num_workloads = int(self._group_B[-1]) + 1
        ends = [num_workloads * number // self.num_shares for number in (self.share, self.share + 1)]
        return slice(*np.searchsorted(self._group_B, ends).tolist())

    def _run(
        self, workload: Workload, uniform_BTM: np.ndarray, name: str
    ) -> tuple[list[MultiAgentEpisode], np.ndarray]:
        """Run a workload to its end; returns the episodes and the return of each, (B,)."""
        num_episodes, num_steps, num_nodes = uniform_BTM.shape
        reward_TB = np.zeros((num_steps, num_episodes))
        steps: list[tuple[int, np.ndarray, Features, dict[str, np.ndarray]]] = []
        self.env.reset(workload)
        for step in range(num_steps):
            rows, observation = self.env.observe()
            features = encode(at_rows(observation, rows))
            outputs = self._decide(features, uniform_BTM[rows, step]) if len(rows) else {}
            action_RM = outputs.get(Columns.ACTIONS, np.empty((0, num_nodes), np.int64))
            reward_TB[step] = self.env.step(rows, action_RM, observation)
            if len(rows):
                steps.append((step, rows, features, outputs))
        return self._episodes(steps, reward_TB, name), reward_TB.sum(0)

    def _decide(self, features: Features, uniform_RM: np.ndarray) -> dict[str, np.ndarray]:
        batch = {
            Columns.OBS: {name: torch.from_numpy(part) for name, part in features.items()},
            UNIFORM: torch.from_numpy(uniform_RM),
        }
        outputs = self.module[SHARED].forward_exploration(batch)
        return {name: output.numpy() for name, output in outputs.items()}

    def _episodes(self, steps: list, reward_TB: np.ndarray, name: str) -> list[MultiAgentEpisode]:
        """Cut the steps into episodes; those without a decision have nothing to learn from."""
        if not steps:
            return []
        numbers, rows_of_step, observed, decided = zip(*steps, strict=True)
        episode_R = np.concatenate(rows_of_step)
        step_R = np.repeat(numbers, [len(rows) for rows in rows_of_step])
        features = {key: np.concatenate([part[key] for part in observed]) for key in observed[0]}
        outputs = {key: np.concatenate([out[key] for out in decided]) for key in decided[0]}
        scale = self.module[SHARED].value_scale
        value_R = scale.denormalise(torch.from_numpy(outputs[Columns.VF_PREDS]))
        outputs[Columns.VF_PREDS] = with_workload_baseline(
            value_R.numpy(), step_R, episode_R, reward_TB, self._group_B[self._share()]
        )
        total_TB = np.concatenate((np.zeros((1, reward_TB.shape[1])), reward_TB.cumsum(0)))
        episodes = []
        for number in np.unique(episode_R):
            rows = np.flatnonzero(episode_R == number)  # in the order of time
            until = np.append(step_R[rows], len(reward_TB))
            reward_R = np.diff(total_TB[until, number])
            last = np.append(rows, rows[-1])  # RLlib wants an observation after the end
            episodes.append(
                _episode(
                    f"{name}-{number:06d}",
                    {key: part[last] for key, part in features.items()},
                    {key: out[rows] for key, out in outputs.items()},
                    reward_R,
                    self.weights_seq_no,
                )
            )
        return episodes


def _episode(
    name: str, observations: Features, outputs: dict[str, np.ndarray], reward_R: np.ndarray, sequence: int
) -> MultiAgentEpisode:
    """One terminated episode in which every node acted at every decision.

    What is the same for all nodes is held once: the buffers are most of what an episode costs to build.
    """
    length, num_nodes = outputs[Columns.ACTIONS].shape
    episode = MultiAgentEpisode(id_=name, agent_to_module_mapping_fn=module_of_node)
    episode.env_t, episode.is_terminated = length, True
    steps = InfiniteLookbackBuffer(list(range(length + 1)))
    observed, infos = InfiniteLookbackBuffer(observations), InfiniteLookbackBuffer([{}] * (length + 1))
    rewards = InfiniteLookbackBuffer(reward_R)
    shared = {
        Columns.VF_PREDS: InfiniteLookbackBuffer(outputs[Columns.VF_PREDS]),
        WEIGHTS_SEQ_NO: InfiniteLookbackBuffer(np.full(length, sequence, np.int64)),
    }
    for node, agent in enumerate(agent_names(num_nodes)):
        episode.env_t_to_agent_t[agent] = steps
        own_logp = InfiniteLookbackBuffer(outputs[Columns.ACTION_LOGP][:, node])
        episode.agent_episodes[agent] = SingleAgentEpisode(
            id_=f"{name}-{agent}",
            agent_id=agent,
            module_id=SHARED,
            multi_agent_episode_id=name,
            observations=observed,
            infos=infos,
            actions=InfiniteLookbackBuffer(outputs[Columns.ACTIONS][:, node]),
            rewards=rewards,
            extra_model_outputs=shared | {Columns.ACTION_LOGP: own_logp},
            terminated=True,
            len_lookback_buffer=0,
        )
    return episode
