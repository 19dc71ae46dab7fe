"""A trained transformer as an Allocator: greedy decoding, and weights in safetensors beside a JSON file.

Axis letters: B episodes, M nodes, K slots.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mara_ray.allocator.mat.features import encode
from mara_ray.allocator.mat.network import MAT, NetworkShape
from mara_ray.allocator.placement import place_by_priority
from mara_ray.artifacts import read_json, write_json, written_whole
from mara_ray.errors import UserError
from mara_ray.simulator.decisions import at_rows, forced_action, has_choice
from mara_ray.simulator.observe import Observation

WEIGHTS_FILE, FACTS_FILE = "policy.safetensors", "policy.json"
REMEDY = "train it again with `mara allocator train`"


class MATAllocator:
    """Serves the tasks that the network finds likeliest to be right.

    Attributes:
        network: the transformer.
        facts: what it was trained from and how it did on validation (see `train_policy`).
    """

    name = "mara"

    def __init__(self, network: MAT, facts: dict[str, Any]) -> None:
        self.network, self.facts = network.eval(), facts

    def reset(self, num_episodes: int) -> None:
        """Nothing is remembered."""

    def allocate(self, observation: Observation) -> np.ndarray:
        """See `Allocator.allocate`. With alike nodes a task that is served again keeps its node."""
        alike = self.network.shape.imposed_order
        action_BM = forced_action(observation)
        rows = np.flatnonzero(has_choice(observation, alike))
        if len(rows):
            action_BM[rows] = self._decide(at_rows(observation, rows))
        if not alike:
            return action_BM
        slot_K = np.arange(1, observation.active_BK.shape[1] + 1)
        chosen_BK = (action_BM[:, :, None] == slot_K).any(1)
        return place_by_priority(observation, ~chosen_BK)

    def _decide(self, observation: Observation) -> np.ndarray:
        features = {name: torch.from_numpy(part) for name, part in encode(observation).items()}
        with torch.inference_mode():
            return self.network.act(features, None).action_BM.numpy()

    def save(self, directory: Path) -> None:
        """Write the weights, then the facts: a policy is whole when both are there."""
        save_weights(self.network, directory / WEIGHTS_FILE)
        write_json(directory / FACTS_FILE, {"shape": asdict(self.network.shape), **self.facts})

    @classmethod
    def load(cls, directory: Path) -> MATAllocator:
        """Read a policy.

        Raises:
            UserError: a file is missing or damaged.
        """
        facts = read_json(directory / FACTS_FILE)
        try:
            network = MAT(NetworkShape(**facts.pop("shape")))
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"policy: {directory / FACTS_FILE} is damaged ({error}); {REMEDY}") from error
        load_weights(network, directory / WEIGHTS_FILE)
        return cls(network, facts)


def is_trained(directory: Path) -> bool:
    """Whether a whole policy lies in the directory."""
    return (directory / FACTS_FILE).is_file() and (directory / WEIGHTS_FILE).is_file()


def save_weights(network: MAT, path: Path) -> None:
    """Write a network's weights, whole or not at all."""
    with written_whole(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, temporary)


def load_weights(network: MAT, path: Path) -> None:
    """Fill a network with weights.

    Raises:
        UserError: the file is missing, damaged, or of another network.
    """
    try:
        network.load_state_dict(load_file(path))
    except FileNotFoundError as error:
        raise UserError(f"policy: {path} is missing; {REMEDY}") from error
    except (SafetensorError, RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"policy: {path} is damaged ({reason}); {REMEDY}") from error
