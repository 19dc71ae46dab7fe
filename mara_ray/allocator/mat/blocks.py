"""The transformer's building blocks.

Axis letters: B rows, L tokens, Q querying tokens, M nodes, K slots, d token width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name


class Attention(nn.Module):
    """Multi-head attention whose keys and values can be made once and reused."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def keys_values(self, token_BLd: Tensor) -> Tensor:
        """Keys and values side by side, (B, L, 2 d): those of more tokens go below."""
        return self.key_value(token_BLd)

    def forward(self, token_BQd: Tensor, keys_values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from the tokens; `mask` is added to the scores."""
        query = self._split(self.query(token_BQd), self.num_heads)
        keys, values = self._split(keys_values, 2 * self.num_heads).chunk(2, 1)
        mixed = F.scaled_dot_product_attention(query, keys, values, mask)
        return self.out(mixed.transpose(1, 2).flatten(2))

    @staticmethod
    def _split(token_BLd: Tensor, num_heads: int) -> Tensor:
        return token_BLd.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class EncoderBlock(nn.Module):
    """Pre-norm self-attention over slots and nodes, then a two-layer perceptron."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, num_heads)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = _perceptron(width)

    def forward(self, token_BLd: Tensor, mask: Tensor) -> Tensor:
        """Mix the tokens."""
        normed_BLd = self.norm_1(token_BLd)
        token_BLd = token_BLd + self.attention(normed_BLd, self.attention.keys_values(normed_BLd), mask)
        return token_BLd + self.mlp(self.norm_2(token_BLd))


class DecoderBlock(nn.Module):
    """Attention to the nodes before and to the slots, then a two-layer perceptron."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.own, self.cross = Attention(width, num_heads), Attention(width, num_heads)
        self.norm_1, self.norm_2, self.norm_3 = (nn.LayerNorm(width) for _ in range(3))
        self.mlp = _perceptron(width)

    def no_past(self, slot_BKd: Tensor) -> Tensor:
        """Keys and values of the nodes before the first, (B, 0, 2 d)."""
        return slot_BKd.new_empty(slot_BKd.shape[0], 0, 2 * slot_BKd.shape[2])

    def remember(self, slot_BKd: Tensor) -> Tensor:
        """Keys and values of the slots, the same for every node."""
        return self.cross.keys_values(slot_BKd)

    def forward(
        self,
        token_BQd: Tensor,
        past: Tensor,
        slots: Tensor,
        causal: Tensor | None,
        empty_B11K: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Decode Q nodes after those of `past`; returns their tokens and the keys and values so far."""
        normed_BQd = self.norm_1(token_BQd)
        so_far = torch.cat((past, self.own.keys_values(normed_BQd)), 1)
        token_BQd = token_BQd + self.own(normed_BQd, so_far, causal)
        token_BQd = token_BQd + self.cross(self.norm_2(token_BQd), slots, empty_B11K)
        return token_BQd + self.mlp(self.norm_3(token_BQd)), so_far


def _perceptron(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
