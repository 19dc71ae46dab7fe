"""The networks that the learning tasks train: small, plain, one class each.

Axis letters: B examples of a mini-batch, L words, P patches, D features, H height, W width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mara_ray.curves.datasets.image import SIDE_PIXELS
from mara_ray.curves.datasets.text import PADDING

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


class MLP(nn.Sequential):
    """Dense layers over the pixels of an image."""

    def __init__(self, hyperparameters: dict[str, Any], outputs: int) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        features = SIDE_PIXELS**2
        for _ in range(hyperparameters["depth"]):
            layers += [
                nn.Linear(features, hyperparameters["width"]),
                ACTIVATIONS[hyperparameters["activation"]](),
            ]
            features = hyperparameters["width"]
        super().__init__(*layers, nn.Linear(features, outputs))


class CNN(nn.Sequential):
    """Two convolutions, each with 2x2 max-pooling, and a dense layer."""

    def __init__(self, hyperparameters: dict[str, Any], outputs: int) -> None:
        width = hyperparameters["width"]
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(hyperparameters["dropout"]),
            nn.Linear(2 * width * (SIDE_PIXELS // 4) ** 2, outputs),
        )


class BagOfWords(nn.Module):
    """The mean of word embeddings, and a dense layer."""

    def __init__(self, hyperparameters: dict[str, Any], outputs: int) -> None:
        super().__init__()
        width = hyperparameters["width"]
        self.embedding = nn.Embedding(hyperparameters["vocabulary"], width)
        self.head = nn.Sequential(nn.Dropout(hyperparameters["dropout"]), nn.Linear(width, outputs))
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, words_BL: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs) of reviews given as word numbers."""
        known_BL1 = (words_BL != PADDING).unsqueeze(-1)
        total_BD = (self.embedding(words_BL) * known_BL1).sum(1)
        return self.head(total_BD / known_BL1.sum(1).clamp(min=1))


class ViTBlock(nn.Module):
    """Pre-norm self-attention and a feed-forward layer of twice the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens_BPD: torch.Tensor) -> torch.Tensor:
        """The tokens after this block, (B, P, D)."""
        batch, num_tokens, width = tokens_BPD.shape
        projected = self.query_key_value(self.attention_norm(tokens_BPD))
        heads = projected.view(batch, num_tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        # Written out, since the fused kernels are not deterministic on every device.
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, num_tokens, width)
        tokens_BPD = tokens_BPD + self.output(mixed)
        return tokens_BPD + self.feed(self.feed_norm(tokens_BPD))


class ViT(nn.Module):
    """A vision transformer over patches of the image, padded to 16x16."""

    def __init__(self, hyperparameters: dict[str, Any], outputs: int) -> None:
        super().__init__()
        self.patch, width = hyperparameters["patch"], hyperparameters["width"]
        self.embedding = nn.Linear(self.patch**2, width)
        self.position = nn.Parameter(torch.randn((16 // self.patch) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(
            *(ViTBlock(width, hyperparameters["heads"]) for _ in range(hyperparameters["depth"]))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, outputs))

    def forward(self, images_B1HW: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs) of images."""
        padded = nn.functional.pad(images_B1HW, (1, 1, 1, 1))
        side = 16 // self.patch
        patches = padded.view(-1, side, self.patch, side, self.patch).transpose(2, 3)
        tokens_BPD = self.embedding(patches.reshape(len(padded), side**2, -1)) + self.position
        return self.head(self.blocks(tokens_BPD).mean(1))


class ActorCritic(nn.Module):
    """Policy logits and a value from one body; the policy starts out uniform."""

    def __init__(self, hyperparameters: dict[str, Any], outputs: int) -> None:
        super().__init__()
        width = hyperparameters["width"]
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, outputs), nn.Linear(width, 1)
        nn.init.zeros_(self.policy.weight)
        nn.init.zeros_(self.policy.bias)

    def forward(self, observations_B4: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, outputs) and values (B,)."""
        features_BD = self.body(observations_B4)
        return self.policy(features_BD), self.value(features_BD).squeeze(-1)

    def policy_weights(self) -> list[torch.Tensor]:
        """Weight and bias of each layer up to the logits, detached."""
        return [weight.detach() for part in (self.body, self.policy) for weight in part.parameters()]


MODELS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "cnn": CNN,
    "bow": BagOfWords,
    "vit": ViT,
    "actor_critic": ActorCritic,
}
