"""What a learning task learns: a model, the losses it descends on, and a reading of its progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn


class Problem(Protocol):
    """One learning problem; built from (hyperparameters, random stream, device, data folder)."""

    @property
    def model(self) -> nn.Module:
        """The model in training."""
        ...

    def losses(self, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """The losses of one mini-batch; the task takes one optimiser step on each."""
        ...

    def reading(self) -> float:
        """The progress after the last mini-batch, as a loss."""
        ...

    def untrained_reading(self, rng: np.random.Generator, num_batches: int) -> float:
        """The reading before any learning."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What changes beyond the model."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        ...
