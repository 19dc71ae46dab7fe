"""From RLlib's multi-agent episodes to PPO's rows: one row a time step, all nodes in it.

Axis letters: R rows of one epoch (decisions), M nodes.
RLlib's own connectors give every agent its own rows, which shuffling and minibatches then tear apart;
here the nodes of a step stay together and share the team's advantage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO
from scipy.signal import lfilter

from mara_ray.allocator.mat.module import SHARED
from mara_ray.seeding import generator
from mara_ray.simulator.env import agent_names


class TeamBatch(ConnectorV2):
    """Pack episodes into rows, add the team's advantages, and lay out all epochs in random order.

    RLlib never shuffles the first epoch and shuffles the others with a generator that a checkpoint does
    not hold; so the epochs are laid out here, each in an order keyed by the seed and the weights' number.
    """

    def __init__(self, *, gae_lambda: float, epochs: int, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._gae_lambda, self._epochs, self._seed = gae_lambda, epochs, seed

    def __call__(
        self, *, rl_module: Any, batch: dict[str, Any], episodes: list[MultiAgentEpisode], **kwargs: Any
    ) -> dict[str, Any]:
        """Build the training batch, and let the value scale see its targets."""
        episodes = sorted(episodes, key=lambda episode: episode.id_)  # not the order in which runners answer
        rows = [self._rows(episode) for episode in episodes]
        columns = {
            name: np.concatenate([row[name] for row in rows]) for name in rows[0] if name != Columns.OBS
        }
        features = {
            name: np.concatenate([row[Columns.OBS][name] for row in rows]) for name in rows[0][Columns.OBS]
        }
        advantage_R = columns[Postprocessing.ADVANTAGES]
        spread = max(1e-4, float(advantage_R.std()))
        columns[Postprocessing.ADVANTAGES] = (advantage_R - advantage_R.mean()) / spread
        target_R = torch.from_numpy(columns[Postprocessing.VALUE_TARGETS])
        rl_module[SHARED].unwrapped().value_scale.update(target_R)
        order = torch.from_numpy(self._order(len(target_R), int(columns[WEIGHTS_SEQ_NO][0])))
        laid_out: dict[str, Any] = {name: torch.from_numpy(column)[order] for name, column in columns.items()}
        laid_out[Columns.OBS] = {name: torch.from_numpy(part)[order] for name, part in features.items()}
        return {SHARED: laid_out}

    def _rows(self, episode: MultiAgentEpisode) -> dict[str, Any]:
        # Agents are looked up by node number: RLlib keeps them in sets and dictionaries of any order.
        agents = [episode.agent_episodes[name] for name in agent_names(len(episode.agent_episodes))]
        first, length = agents[0], len(agents[0])
        value_R, reward_R = first.get_extra_model_outputs(Columns.VF_PREDS), first.get_rewards()
        advantage_R = team_advantages(reward_R, value_R, self._gae_lambda)
        return {
            Columns.OBS: {name: part[:length] for name, part in first.observations.data.items()},
            Columns.ACTIONS: np.stack([agent.get_actions() for agent in agents], 1),
            Columns.ACTION_LOGP: np.stack(
                [agent.get_extra_model_outputs(Columns.ACTION_LOGP) for agent in agents], 1
            ),
            Postprocessing.ADVANTAGES: advantage_R.astype(np.float32),
            Postprocessing.VALUE_TARGETS: (advantage_R + value_R).astype(np.float32),
            WEIGHTS_SEQ_NO: first.get_extra_model_outputs(WEIGHTS_SEQ_NO),
        }

    def _order(self, num_rows: int, sequence: int) -> np.ndarray:
        rng = generator(self._seed, "allocator", "order", sequence)
        return np.concatenate([rng.permutation(num_rows) for _ in range(self._epochs)])


def team_advantages(reward_R: np.ndarray, value_R: np.ndarray, gae_lambda: float) -> np.ndarray:
    """Generalised advantage estimates with gamma = 1 of one terminated episode, float64 (R,)."""
    delta_R = reward_R + np.append(value_R[1:], 0.0) - value_R
    return lfilter([1.0], [1.0, -gae_lambda], delta_R[::-1].astype(np.float64))[::-1]
