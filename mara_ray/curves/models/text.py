"""Networks for reviews, given as word numbers with 0 where a review has ended.

Axis letters: B reviews of a mini-batch, L words, D features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mara_ray.curves.datasets.text import PADDING
from mara_ray.curves.models.recurrent import RECURRENT


class BagOfWords(nn.Module):
    """The mean of word embeddings, `depth` hidden layers of the same width, and a dense layer."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        width = hyperparameters["width"]
        self.embedding = nn.Embedding(hyperparameters["vocabulary"], width)
        hidden = [
            layer for _ in range(hyperparameters["depth"]) for layer in (nn.Linear(width, width), nn.ReLU())
        ]
        self.head = nn.Sequential(
            *hidden, nn.Dropout(hyperparameters["dropout"]), nn.Linear(width, num_outputs)
        )
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, words_BL: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs)."""
        known_BL1 = (words_BL != PADDING).unsqueeze(-1)
        total_BD = (self.embedding(words_BL) * known_BL1).sum(1)
        return self.head(total_BD / known_BL1.sum(1).clamp(min=1))


class TextCNN(nn.Module):
    """Convolutions over two and three words, each feature's maximum, and a dense layer (Kim 2014).

    The convolutions are dense layers over neighbouring words, which for short reviews is quicker.
    """

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        embedding, width = hyperparameters["embedding"], hyperparameters["width"]
        self.embedding = nn.Embedding(hyperparameters["vocabulary"], embedding)
        self.pairs, self.triples = nn.Linear(2 * embedding, width), nn.Linear(3 * embedding, width)
        self.head = nn.Linear(2 * width, num_outputs)

    def forward(self, words_BL: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs)."""
        embedded_BLD = self.embedding(words_BL)
        pair_BLD = torch.cat([embedded_BLD[:, :-1], embedded_BLD[:, 1:]], 2)
        triple_BLD = torch.cat([pair_BLD[:, :-1], embedded_BLD[:, 2:]], 2)
        features = [self.pairs(pair_BLD).amax(1), self.triples(triple_BLD).amax(1)]
        return self.head(torch.cat(features, 1).relu())


class TextRNN(nn.Module):
    """A recurrent network over word embeddings; the mean of its outputs at real words, and a dense layer."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        embedding, width = hyperparameters["embedding"], hyperparameters["width"]
        self.embedding = nn.Embedding(hyperparameters["vocabulary"], embedding)
        self.recurrent = RECURRENT[hyperparameters["cell"]](embedding, width, batch_first=True)
        self.head = nn.Linear(width, num_outputs)

    def forward(self, words_BL: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs)."""
        known_BL1 = (words_BL != PADDING).unsqueeze(-1)
        outputs_BLD, _ = self.recurrent(self.embedding(words_BL))
        return self.head((outputs_BLD * known_BL1).sum(1) / known_BL1.sum(1).clamp(min=1))
