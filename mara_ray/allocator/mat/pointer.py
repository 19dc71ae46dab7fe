"""How a node's choice among the slots is scored, limited and drawn: one way for acting and for evaluating.

Axis letters: B rows, M nodes, Q nodes that choose, K slots, C choices (idle, slot 1..K), d token width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

NO_LOGIT = -1e9
IDLE_LOGIT = NO_LOGIT / 2  # next to a slot that may be chosen it has no probability, and else all of it
EMPTY = 1 << 30  # later than any rank


class Pointer(NamedTuple):
    """What the choices are scored with, the same for act and evaluate.

    Attributes:
        key_BdK: keys of the slots, scaled.
        prior_BMK: logits before the decoder has its say: urgency, and staying with the task served.
        rank_BK: urgency rank, EMPTY for an empty slot.
        due_BM: with an imposed order, the number of tasks less that of the nodes that follow.
    """

    key_BdK: Tensor
    prior_BMK: Tensor
    rank_BK: Tensor
    due_BM: Tensor


def choosable(rank_BK: Tensor, last_rank_BM: Tensor, due_BM: Tensor) -> Tensor:
    """The slots a node may choose with an imposed order, bool (B, M, K); none where it must idle.

    Increasing ranks, and no choice so late that fewer tasks than nodes would follow it.

    Args:
        rank_BK: urgency rank, EMPTY for an empty slot.
        last_rank_BM: rank chosen by the node before; -1 for the first node, K or EMPTY after an idle one.
        due_BM: the number of tasks less that of the nodes that follow.
    """
    latest_BM = torch.maximum(due_BM, last_rank_BM + 2)
    rank_B1K = rank_BK[:, None]
    return (rank_B1K > last_rank_BM[..., None]) & (rank_B1K < latest_BM[..., None])


def log_probabilities(query_BQd: Tensor, key_BdK: Tensor, prior_BQK: Tensor, allowed_BQK: Tensor) -> Tensor:
    """Log-probabilities of idle and slots 1..K, (B, Q, 1 + K)."""
    logit_BQK = torch.baddbmm(prior_BQK, query_BQd, key_BdK)
    logit_BQK = torch.where(allowed_BQK, logit_BQK, NO_LOGIT)
    return F.pad(logit_BQK, (1, 0), value=IDLE_LOGIT).log_softmax(-1)


def is_slot(action_BM: Tensor, num_slots: int) -> Tensor:
    """Whether the action is slot k, bool (B, M, K)."""
    return action_BM[..., None] == torch.arange(1, num_slots + 1, device=action_BM.device)


def draw(logp_BC: Tensor, uniform_B1: Tensor | None = None) -> Tensor:
    """Sample by inverting the cumulative distribution, or take the likeliest; (B, 1)."""
    if uniform_B1 is None:
        return logp_BC.argmax(1, keepdim=True)
    cumulative_BC = logp_BC.exp().cumsum(1)
    # Scaled to the sum, which rounding may leave just under 1: a forbidden choice adds nothing to it.
    return (cumulative_BC > uniform_B1 * cumulative_BC[:, -1:]).int().argmax(1, keepdim=True)
