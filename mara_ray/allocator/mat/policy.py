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

from mara_ray import pretrained
from mara_ray.allocator.mat.features import encode
from mara_ray.allocator.mat.network import MAT, NetworkShape
from mara_ray.allocator.placement import place_by_priority
from mara_ray.artifacts import read_json, write_json, written_whole
from mara_ray.errors import UserError
from mara_ray.simulator.decisions import Decisions, at_rows
from mara_ray.simulator.observe import Observation

WEIGHTS_FILE, FACTS_FILE = "policy.safetensors", "policy.json"
REMEDY = "train it again with `mara allocator train`"


class MATAllocator:
    """Serves the tasks that the network finds likeliest to be right; holds to a decision as in training.

    Attributes:
        network: the transformer.
        decision_steps: see `Decisions`.
        facts: what it was trained from and how it did on validation (see `train_policy`).
    """

    name = "mara"

    def __init__(self, network: MAT, decision_steps: int, facts: dict[str, Any]) -> None:
        self.network, self.decision_steps, self.facts = network.eval(), decision_steps, facts
        self._decisions = Decisions(network.shape.imposed_order, decision_steps)

    def reset(self, num_episodes: int) -> None:
        """Forget the decisions held."""
        self._decisions.reset()

    def allocate(self, observation: Observation) -> np.ndarray:
        """See `Allocator.allocate`. With alike nodes a task that is served again keeps its node."""
        rows = self._decisions.due(observation)
        action_RM = np.empty((0, observation.node_slot_BM.shape[1]), np.int64)
        if len(rows):
            encoded = encode(at_rows(observation, rows))
            features = {name: torch.from_numpy(part) for name, part in encoded.items()}
            action_RM = self.network.decide(features, None).action_BM.numpy()
        action_BM = self._decisions.complete(rows, action_RM, observation)
        if not self.network.shape.imposed_order:
            return action_BM
        slot_K = np.arange(1, observation.active_BK.shape[1] + 1)
        chosen_BK = (action_BM[:, :, None] == slot_K).any(1)
        return place_by_priority(observation, ~chosen_BK)

    def save(self, directory: Path) -> None:
        """Write the weights, then the facts: a policy is whole when both are there."""
        save_weights(self.network, directory / WEIGHTS_FILE)
        facts = {"shape": asdict(self.network.shape), "decision_steps": self.decision_steps, **self.facts}
        write_json(directory / FACTS_FILE, facts)

    @classmethod
    def load(cls, directory: Path) -> MATAllocator:
        """Read a policy.

        Raises:
            UserError: a file is missing or damaged.
        """
        facts = read_json(directory / FACTS_FILE)
        try:
            network, decision_steps = (
                MAT(NetworkShape(**facts.pop("shape"))),
                int(facts.pop("decision_steps")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"policy: {directory / FACTS_FILE} is damaged ({error}); {REMEDY}") from error
        load_weights(network, directory / WEIGHTS_FILE)
        return cls(network, decision_steps, facts)


def located_policies(folder: Path) -> Path:
    """The folder that holds policies; `standard` is the one that ships."""
    return pretrained.POLICIES if str(folder) == "standard" else folder


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
