"""The Multi-Agent Transformer: slots and nodes are encoded together, nodes choose slots one after another.

Axis letters: B rows (one step of one episode each), M nodes, K slots, D features, d token width.
`act` decodes node by node over cached keys and values; `evaluate` does the same for known actions in
one teacher-forced pass. Both score and mask with a `Pointer`, so that their log-probabilities agree. The
logits are a pointer over the slot encodings, so K and M are free at inference.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from mara_ray.allocator.mat.blocks import DecoderBlock, EncoderBlock
from mara_ray.allocator.mat.features import CONTEXT_FEATURES, NODE_FEATURES, RANK_FEATURE, SLOT_FEATURES

FEATURE_NAMES = ("slot", "node", "context", "rank", "serving")
NO_LOGIT = -1e9
IDLE_LOGIT = NO_LOGIT / 2  # next to a slot that may be chosen it has no probability, and else all of it
EMPTY = 1 << 30  # later than any rank
RANK_LOGIT_START = -3.0  # at the start, M places later in the urgency order is e^3 times less likely
POINTER_GAIN_START = 0.05


@dataclass(frozen=True)
class NetworkShape:
    """What a network is built from.

    Attributes:
        width: token width d.
        num_heads: attention heads.
        num_blocks: encoder blocks, and as many decoder blocks.
        imposed_order: nodes are alike and switching is free, so that the M! assignments of the same
            tasks are one decision: the nodes choose in increasing urgency rank.
    """

    width: int
    num_heads: int
    num_blocks: int
    imposed_order: bool


class Encoding(NamedTuple):
    """Tokens slot_BKd and node_BMd, the additive mask of empty slots (B, 1, 1, K), and V (normalised)."""

    slot_BKd: Tensor
    node_BMd: Tensor
    empty_B11K: Tensor
    value_B: Tensor


class Decision(NamedTuple):
    """Joint actions (int64: 0 idle, k for slot k in 1..K), their log-probabilities, V (normalised)."""

    action_BM: Tensor
    logp_BM: Tensor
    value_B: Tensor


class Evaluation(NamedTuple):
    """Known joint actions under the current weights; `free_BM` says where a node had a choice at all."""

    logp_BM: Tensor
    entropy_BM: Tensor
    free_BM: Tensor
    value_B: Tensor


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


def in_order(rank_BK: Tensor, last_rank_BM: Tensor, due_BM: Tensor) -> Tensor:
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


class MAT(nn.Module):
    """The policy and its value function, on the features of `mara_ray.allocator.mat.features`."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        self._traced: dict[tuple[int, int, bool], Callable[..., tuple[Tensor, ...]]] = {}
        self.slot_embedding = nn.Linear(SLOT_FEATURES, width)
        self.node_embedding = nn.Linear(NODE_FEATURES, width)
        self.context_embedding = nn.Linear(CONTEXT_FEATURES, width)
        self.encoder = nn.ModuleList(EncoderBlock(width, shape.num_heads) for _ in range(shape.num_blocks))
        self.decoder = nn.ModuleList(DecoderBlock(width, shape.num_heads) for _ in range(shape.num_blocks))
        self.start_d, self.idle_d = (nn.Parameter(torch.zeros(width)) for _ in range(2))
        self.choice_embedding = nn.Linear(width, width)
        self.norm_encoder, self.norm_decoder = nn.LayerNorm(width), nn.LayerNorm(width)
        self.pointer_query, self.pointer_key = nn.Linear(width, width), nn.Linear(width, width)
        self.slot_logit = nn.Linear(SLOT_FEATURES, 1, bias=False)
        self.stay_logit = nn.Parameter(torch.zeros(1))
        self.value_head = nn.Sequential(
            nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1), nn.Flatten(0)
        )
        nn.init.orthogonal_(self.pointer_query.weight, POINTER_GAIN_START)
        nn.init.zeros_(self.pointer_query.bias)
        nn.init.zeros_(self.slot_logit.weight)
        with torch.no_grad():
            self.slot_logit.weight[0, RANK_FEATURE] = RANK_LOGIT_START

    def decide(self, features: dict[str, Tensor], uniform_BM: Tensor | None) -> Decision:
        """`act` without gradients, traced once for each M and K: no Python between its operations.

        With few rows the time goes into calling operations; traced they take less than half of it.
        """
        shape = (features["node"].shape[1], features["rank"].shape[1], uniform_BM is None)
        inputs = [features[name] for name in FEATURE_NAMES] + ([] if uniform_BM is None else [uniform_BM])
        with torch.inference_mode():
            if shape not in self._traced:
                with warnings.catch_warnings():
                    # M and K become constants, as they should.
                    warnings.simplefilter("ignore", torch.jit.TracerWarning)
                    self._traced[shape] = torch.jit.trace(_Act(self), tuple(inputs), check_trace=False)
            return Decision(*self._traced[shape](*inputs))

    def act(self, features: dict[str, Tensor], uniform_BM: Tensor | None) -> Decision:
        """Choose slots node by node: sampled with the given uniform numbers, or greedily without them."""
        encoding = self.encode(features)
        pointer, imposed = self._pointer(features, encoding.slot_BKd), self.shape.imposed_order
        memory = [block.remember(encoding.slot_BKd) for block in self._decoders()]
        choices_BCd = self._choices(encoding.slot_BKd)
        rank_BC = _with_idle(pointer.rank_BK, EMPTY)
        free_BC = rank_BC < EMPTY
        nodes_B1d, priors_B1K = encoding.node_BMd.split(1, 1), pointer.prior_BMK.split(1, 1)
        dues_B1 = pointer.due_BM.split(1, 1)
        past: list[Tensor | None] = [None] * len(memory)
        previous_B1d = self.start_d.expand(rank_BC.shape[0], 1, -1)
        last_rank_B1 = torch.full_like(rank_BC[:, :1], -1)
        actions, logps = [], []
        for node, node_B1d in enumerate(nodes_B1d):
            token_B1d = node_B1d + previous_B1d
            for number, block in enumerate(self._decoders()):
                token_B1d, past[number] = block(
                    token_B1d, past[number], memory[number], None, encoding.empty_B11K
                )
            allowed_B1K = (
                in_order(pointer.rank_BK, last_rank_B1, dues_B1[node]) if imposed else free_BC[:, None, 1:]
            )
            logp_BC = self._log_probabilities(token_B1d, pointer.key_BdK, priors_B1K[node], allowed_B1K)[:, 0]
            action_B1 = _draw(logp_BC, None if uniform_BM is None else uniform_BM[:, node])[:, None]
            actions.append(action_B1)
            logps.append(logp_BC.gather(1, action_B1))
            previous_B1d = choices_BCd.gather(1, action_B1[..., None].expand(-1, -1, choices_BCd.shape[2]))
            if imposed:
                last_rank_B1 = rank_BC.gather(1, action_B1)
            else:
                free_BC = free_BC.scatter(1, action_B1, 0)
        return Decision(torch.cat(actions, 1), torch.cat(logps, 1), encoding.value_B)

    def evaluate(self, features: dict[str, Tensor], action_BM: Tensor) -> Evaluation:
        """Score known joint actions, all nodes at once: the training pass of `act`."""
        encoding = self.encode(features)
        num_rows, num_nodes = action_BM.shape
        choices_BCd, width = self._choices(encoding.slot_BKd), self.shape.width
        chosen_BMd = choices_BCd.gather(1, action_BM[:, :-1, None].expand(-1, -1, width))
        token_BMd = encoding.node_BMd + torch.cat((self.start_d.expand(num_rows, 1, -1), chosen_BMd), 1)
        causal = torch.full((num_nodes, num_nodes), NO_LOGIT, device=action_BM.device).triu(1)
        for block in self._decoders():
            token_BMd, _ = block(
                token_BMd, None, block.remember(encoding.slot_BKd), causal, encoding.empty_B11K
            )
        pointer = self._pointer(features, encoding.slot_BKd)
        if self.shape.imposed_order:
            rank_BM = _with_idle(pointer.rank_BK, EMPTY).gather(1, action_BM)
            last_rank_BM = F.pad(rank_BM[:, :-1], (1, 0), value=-1)
            allowed_BMK = in_order(pointer.rank_BK, last_rank_BM, pointer.due_BM)
        else:
            chosen_BMK = _is_slot(action_BM, pointer.rank_BK.shape[1])
            taken_BMK = F.pad(chosen_BMK.cumsum(1)[:, :-1], (0, 0, 1, 0)) > 0
            allowed_BMK = (pointer.rank_BK < EMPTY)[:, None] & ~taken_BMK
        logp_BMC = self._log_probabilities(token_BMd, pointer.key_BdK, pointer.prior_BMK, allowed_BMK)
        return Evaluation(
            logp_BMC.gather(2, action_BM[..., None])[..., 0],
            -(logp_BMC.exp() * logp_BMC.clamp_min(-100)).sum(-1),
            allowed_BMK.sum(-1) > 1,
            encoding.value_B,
        )

    def encode(self, features: dict[str, Tensor]) -> Encoding:
        """Mix the tokens of slots and nodes, and value the state."""
        rank_BK = features["rank"]
        num_slots, num_nodes = rank_BK.shape[1], features["node"].shape[1]
        active_BK = rank_BK < num_slots
        context_B1d = self.context_embedding(features["context"])[:, None]
        token_BLd = torch.cat(
            (self.slot_embedding(features["slot"]), self.node_embedding(features["node"])), 1
        )
        token_BLd = token_BLd + context_B1d
        empty_BK = torch.where(active_BK, 0.0, NO_LOGIT)
        mask_B11L = F.pad(empty_BK, (0, num_nodes))[:, None, None]
        for block in self.encoder:
            token_BLd = block(token_BLd, mask_B11L)
        token_BLd = self.norm_encoder(token_BLd)
        slot_BKd, node_BMd = token_BLd.split((num_slots, num_nodes), 1)
        # An empty pool must not make every key a masked one: its softmax would be uniform over rubbish.
        weight_BK1 = active_BK[..., None] / active_BK.sum(1).clamp_min(1)[:, None, None]
        pooled_Bd = (slot_BKd * weight_BK1).sum(1)
        value_B = self.value_head(torch.cat((pooled_Bd, node_BMd.mean(1)), -1))
        return Encoding(slot_BKd, node_BMd, empty_BK[:, None, None], value_B)

    def _decoders(self) -> list[DecoderBlock]:
        return cast(list[DecoderBlock], list(self.decoder))

    def _choices(self, slot_BKd: Tensor) -> Tensor:
        """What a node is told of the choice before it, (B, 1 + K, d): idle, slot 1..K."""
        return F.pad(self.choice_embedding(slot_BKd), (0, 0, 1, 0)) + F.pad(
            self.idle_d[None], (0, 0, 0, slot_BKd.shape[1])
        )

    def _pointer(self, features: dict[str, Tensor], slot_BKd: Tensor) -> Pointer:
        """All of a choice's score and its limits that does not depend on the choices before."""
        rank_BK, num_nodes = features["rank"], features["node"].shape[1]
        active_BK = rank_BK < rank_BK.shape[1]
        spare_M = torch.arange(num_nodes - 1, -1, -1, device=rank_BK.device)
        urgency_B1K = self.slot_logit(features["slot"]).transpose(1, 2)
        return Pointer(
            self.pointer_key(slot_BKd).transpose(1, 2) / math.sqrt(self.shape.width),
            urgency_B1K + self.stay_logit * _is_slot(features["serving"], rank_BK.shape[1]),
            torch.where(active_BK, rank_BK, EMPTY),
            active_BK.sum(1, keepdim=True) - spare_M,
        )

    def _log_probabilities(
        self, token_BQd: Tensor, key_BdK: Tensor, prior_BQK: Tensor, allowed_BQK: Tensor
    ) -> Tensor:
        """Log-probabilities of idle and slots 1..K, (B, Q, 1 + K)."""
        logit_BQK = torch.baddbmm(prior_BQK, self.pointer_query(token_BQd), key_BdK)
        logit_BQK = torch.where(allowed_BQK, logit_BQK, NO_LOGIT)
        return _with_idle(logit_BQK, IDLE_LOGIT).log_softmax(-1)


class _Act(nn.Module):
    """`MAT.act` with tensors for arguments, as tracing wants it."""

    def __init__(self, network: MAT) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        features = dict(zip(FEATURE_NAMES, inputs, strict=False))
        uniform_BM = inputs[len(FEATURE_NAMES)] if len(inputs) > len(FEATURE_NAMES) else None
        return tuple(self.network.act(features, uniform_BM))


def _is_slot(action_BM: Tensor, num_slots: int) -> Tensor:
    """Whether the action is slot k, bool (B, M, K)."""
    return action_BM[..., None] == torch.arange(1, num_slots + 1, device=action_BM.device)


def _with_idle(value_BK: Tensor, idle: float) -> Tensor:
    """Values of the choices idle, slot 1..K from those of the slots, (..., 1 + K)."""
    return F.pad(value_BK, (1, 0), value=idle)


def _draw(logp_BC: Tensor, uniform_B: Tensor | None) -> Tensor:
    """Sample by inverting the cumulative distribution, or take the likeliest."""
    if uniform_B is None:
        return logp_BC.argmax(1)
    cumulative_BC = logp_BC.exp().cumsum(1)
    # Scaled to the sum, which rounding may leave just under 1: a forbidden choice adds nothing to it.
    return (cumulative_BC > (uniform_B * cumulative_BC[:, -1])[:, None]).int().argmax(1)
