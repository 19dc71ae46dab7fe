"""Networks for images: dense, convolutional, residual, and vision transformers.

Axis letters: B images of a mini-batch, C channels, H height, W width, P patches, D features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


class MLP(nn.Sequential):
    """Dense layers over the pixels of an image."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        features = input_shape[0] * input_shape[1] * input_shape[2]
        for _ in range(hyperparameters["depth"]):
            layers += [
                nn.Linear(features, hyperparameters["width"]),
                ACTIVATIONS[hyperparameters["activation"]](),
            ]
            features = hyperparameters["width"]
        super().__init__(*layers, nn.Linear(features, num_outputs))


class CNN(nn.Sequential):
    """Two 3x3 convolutions that halve the sides, and a dense layer."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        channels, height, width_pixels = input_shape
        width = hyperparameters["width"]
        super().__init__(
            nn.Conv2d(channels, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(hyperparameters["dropout"]),
            nn.Linear(2 * width * -(-height // 4) * -(-width_pixels // 4), num_outputs),
        )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation, added to their input (He et al. 2016)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.skip = nn.Sequential()
        if stride > 1 or channels_in != channels_out:
            self.skip = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """The images after this block."""
        return torch.relu(self.body(images_BCHW) + self.skip(images_BCHW))


class ResNet(nn.Sequential):
    """A residual network without the first pooling, as is usual for small images (He et al. 2016).

    `stride` of the hyperparameters is that of the first convolution, and `stages` holds the residual blocks
    of each stage; stages after the first halve the sides and double the channels. At width 64, [2, 2, 2, 2]
    is ResNet-18 and [3, 4, 6, 3] ResNet-34.
    """

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        channels, stride = hyperparameters["width"], hyperparameters["stride"]
        layers: list[nn.Module] = [
            nn.Conv2d(input_shape[0], channels, max(3, stride), stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        ]
        for stage, num_blocks in enumerate(hyperparameters["stages"]):
            for block in range(num_blocks):
                halves = stage > 0 and block == 0
                wider = 2 * channels if halves else channels
                layers.append(ResidualBlock(channels, wider, stride=2 if halves else 1))
                channels = wider
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_outputs))


class TransformerBlock(nn.Module):
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
    """A vision transformer over square patches of the image, padded to whole patches (Dosovitskiy 2020)."""

    def __init__(
        self, hyperparameters: dict[str, Any], input_shape: tuple[int, ...], num_outputs: int
    ) -> None:
        super().__init__()
        channels, side, _ = input_shape
        self.patch, width = hyperparameters["patch"], hyperparameters["width"]
        missing = -side % self.patch
        self.padding = (missing // 2, missing - missing // 2) * 2
        self.patches_per_side = (side + missing) // self.patch
        self.embedding = nn.Linear(channels * self.patch**2, width)
        self.position = nn.Parameter(torch.randn(self.patches_per_side**2, width) * 0.02)
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, hyperparameters["heads"]) for _ in range(hyperparameters["depth"]))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, num_outputs))

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs) of images."""
        padded = nn.functional.pad(images_BCHW, self.padding)
        batch, channels, side = len(padded), padded.shape[1], self.patches_per_side
        patches = padded.view(batch, channels, side, self.patch, side, self.patch).permute(0, 2, 4, 1, 3, 5)
        tokens_BPD = self.embedding(patches.reshape(batch, side**2, -1)) + self.position
        return self.head(self.blocks(tokens_BPD).mean(1))
