"""Supervised learning problems: classify images or reviews."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from mara_ray.curves.datasets.image import augment, draw_images
from mara_ray.curves.datasets.text import draw_reviews, drop_words
from mara_ray.curves.models import MODELS


class Classification:
    """Cross-entropy on mini-batches drawn with replacement; its progress is that very loss."""

    def __init__(self, hyperparameters: dict[str, Any], rng: np.random.Generator, device: str) -> None:
        self.hyperparameters = hyperparameters
        examples, noise = hyperparameters["examples"], hyperparameters["label_noise"]
        if hyperparameters["model"] == "bow":
            num_classes = 2
            inputs, labels = draw_reviews(examples, hyperparameters["vocabulary"], noise, rng)
        else:
            num_classes = hyperparameters["classes"]
            inputs, labels = draw_images(examples, num_classes, noise, rng)
        self.inputs, self.labels = inputs.to(device), labels.to(device)
        self.model = MODELS[hyperparameters["model"]](hyperparameters, num_classes).to(device)

    def losses(self, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """The loss of one mini-batch, to descend on."""
        rows = torch.randint(len(self.labels), (self.hyperparameters["batch_size"],)).to(self.labels.device)
        inputs = self.inputs[rows]
        if self.inputs.ndim == 2:
            inputs = drop_words(inputs, self.hyperparameters["word_dropout"])
        else:
            inputs = augment(inputs, self.hyperparameters["augmentation"])
        loss = functional.cross_entropy(self.model(inputs), self.labels[rows])
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
