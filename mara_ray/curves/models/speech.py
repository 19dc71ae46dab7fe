"""Networks for speech, given as log-mel features.

Axis letters: B examples of a mini-batch, F frames, E mel bands, D features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mara_ray.curves.models.image import TransformerBlock
from mara_ray.curves.models.recurrent import RECURRENT

POOLED = 2  # frames of its last convolution of which SpeechCNN takes the mean


class SpeechCNN(nn.Module):
    """Two convolutions over time, means of neighbours, and a dense layer.

    The convolutions are dense layers over two frames, and over three neighbours of the result, which for
    short recordings is quicker.
    """

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        width = hyperparameters["width"]
        self.pairs, self.triples = nn.Linear(2 * input_shape[1], width), nn.Linear(3 * width, 2 * width)
        self.parts = (input_shape[0] // 2 - 2) // POOLED
        self.head = nn.Linear(2 * width * self.parts, num_outputs)

    def forward(self, frames_BFE: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs)."""
        batch, num_frames, bands = frames_BFE.shape
        pair_BFD = frames_BFE[:, : num_frames // 2 * 2].reshape(batch, num_frames // 2, 2 * bands)
        feature_BFD = self.pairs(pair_BFD).relu()
        triple_BFD = torch.cat([feature_BFD[:, :-2], feature_BFD[:, 1:-1], feature_BFD[:, 2:]], 2)
        feature_BFD = self.triples(triple_BFD[:, : self.parts * POOLED]).relu()
        return self.head(feature_BFD.view(batch, self.parts, POOLED, -1).mean(2).flatten(1))


class SpeechRNN(nn.Module):
    """A recurrent network over frames; the mean of its outputs, and a dense layer."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        width = hyperparameters["width"]
        self.recurrent = RECURRENT[hyperparameters["cell"]](input_shape[1], width, batch_first=True)
        self.head = nn.Linear(width, num_outputs)

    def forward(self, frames_BFE: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs)."""
        return self.head(self.recurrent(frames_BFE)[0].mean(1))


class AudioTransformer(nn.Module):
    """A transformer over groups of four frames (Gong et al. 2021, in small)."""

    FRAMES_PER_TOKEN = 4

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        width = hyperparameters["width"]
        num_frames, bands = input_shape
        self.embedding = nn.Linear(bands * self.FRAMES_PER_TOKEN, width)
        self.position = nn.Parameter(torch.randn(num_frames // self.FRAMES_PER_TOKEN, width) * 0.02)
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, hyperparameters["heads"]) for _ in range(hyperparameters["depth"]))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, num_outputs))

    def forward(self, frames_BFE: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs)."""
        num_tokens = len(self.position)
        grouped = frames_BFE[:, : num_tokens * self.FRAMES_PER_TOKEN].reshape(len(frames_BFE), num_tokens, -1)
        return self.head(self.blocks(self.embedding(grouped) + self.position).mean(1))
