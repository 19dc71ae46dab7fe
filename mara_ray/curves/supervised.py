"""Supervised learning problems: labels or values to be told from images, reviews, speech or games."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mara_ray.curves.datasets.examples import Examples


class Supervised:
    """A loss on mini-batches drawn with replacement; its progress is that very loss.

    Args:
        draw_examples: draws the data set: (hyperparameters, random stream, data folder).
        make_model: builds the model: (hyperparameters, input shape, number of outputs).
    """

    def __init__(
        self,
        draw_examples: Callable[[dict[str, Any], np.random.Generator, Path], Examples],
        make_model: Callable[[dict[str, Any], tuple[int, ...], int], nn.Module],
        hyperparameters: dict[str, Any],
        rng: np.random.Generator,
        device: str,
        data_folder: Path,
    ) -> None:
        self.batch_size = hyperparameters["batch_size"]
        self.examples = draw_examples(hyperparameters, rng, data_folder)
        self.inputs, self.labels = self.examples.inputs.to(device), self.examples.labels.to(device)
        self.model = make_model(hyperparameters, self.examples.input_shape, self.examples.num_outputs)
        self.model.to(device)

    def losses(self, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """The loss of one mini-batch, to descend on."""
        rows = torch.randint(len(self.labels), (self.batch_size,)).to(self.labels.device)
        outputs = self.model(self.examples.prepare(self.inputs[rows]))
        loss = self.examples.loss(outputs, self.labels[rows])
        self._last_loss = loss.detach()
        yield loss

    def reading(self) -> float:
        """The loss of the last mini-batch."""
        return float(self._last_loss)

    def untrained_reading(self, rng: np.random.Generator, num_batches: int) -> float:
        """The mean loss of some mini-batches, without learning from them."""
        with torch.no_grad():
            return float(np.mean([float(next(self.losses(rng))) for _ in range(num_batches)]))

    def state_dict(self) -> dict[str, Any]:
        """Nothing beyond the model: the data come from the seed."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to load."""
