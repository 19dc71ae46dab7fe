"""The Multi-Agent Transformer: slots and nodes are encoded together, nodes choose slots one after another.

Axis letters: B rows (one step of one episode each), M nodes, K slots, D features, d token width.
`act` decodes node by node over cached keys and values; `evaluate` does the same for known actions in
one teacher-forced pass. Both mask with `allowed_slots`, so that their log-probabilities agree. The
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


def allowed_slots(rank_BK: Tensor, taken_BMK: Tensor, last_rank_BM: Tensor, spare_M: Tensor | None) -> Tensor:
    """Which slots each node may choose, given the choices of the nodes before it.

    Args:
        rank_BK: urgency rank, K for an empty slot.
        taken_BMK: bool, slots chosen by earlier nodes.
        last_rank_BM: rank chosen by the node before; -1 for the first node, K after an idle one.
        spare_M: with an imposed order, how many nodes follow each node; None without one.

    Returns:
        bool (B, M, K); all False where the node must idle because no free task is left.
    """
    rank_B1K, num_slots = rank_BK[:, None], rank_BK.shape[1]
    allowed_BMK = (rank_B1K < num_slots) & ~taken_BMK
    if spare_M is None:
        return allowed_BMK
    # Increasing ranks, and no choice so late that fewer tasks than nodes would follow it.
    num_tasks_B1 = (rank_BK < num_slots).sum(1, keepdim=True)
    tightest_BM = torch.minimum(num_tasks_B1, last_rank_BM + 2)
    latest_BM = torch.maximum(num_tasks_B1 - spare_M, tightest_BM)
    return allowed_BMK & (rank_B1K > last_rank_BM[..., None]) & (rank_B1K < latest_BM[..., None])


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
        rank_BK, num_slots = features["rank"], features["rank"].shape[1]
        memory = [block.remember(encoding.slot_BKd) for block in self._decoders()]
        choices_BCd, keys_BKd = self._choices(encoding.slot_BKd), self.pointer_key(encoding.slot_BKd)
        urgency_BK = self.slot_logit(features["slot"])[..., 0]
        past: list[tuple[Tensor, Tensor] | None] = [None] * len(memory)
        previous_B1d = self.start_d.expand(rank_BK.shape[0], 1, -1)
        taken_B1K = torch.zeros_like(rank_BK, dtype=torch.bool)[:, None]
        last_rank_B1 = torch.full_like(rank_BK[:, :1], -1)
        actions, logps = [], []
        for node in range(num_nodes := encoding.node_BMd.shape[1]):
            token_B1d = encoding.node_BMd[:, node : node + 1] + previous_B1d
            for number, block in enumerate(self._decoders()):
                token_B1d, past[number] = block(
                    token_B1d, past[number], memory[number], None, encoding.empty_B11K
                )
            spare_1 = self._spare(num_nodes, rank_BK.device)
            allowed_B1K = allowed_slots(
                rank_BK, taken_B1K, last_rank_B1, None if spare_1 is None else spare_1[node : node + 1]
            )
            logp_BC = self._log_probabilities(
                token_B1d, keys_BKd, allowed_B1K, urgency_BK, features["serving"][:, node : node + 1]
            )[:, 0]
            action_B1 = _draw(logp_BC, None if uniform_BM is None else uniform_BM[:, node])[:, None]
            actions.append(action_B1)
            logps.append(logp_BC.gather(1, action_B1))
            previous_B1d = choices_BCd.gather(1, action_B1[..., None].expand(-1, -1, choices_BCd.shape[2]))
            taken_B1K = taken_B1K | _is_slot(action_B1, num_slots)
            last_rank_B1 = _rank_of(action_B1, rank_BK)
        return Decision(torch.cat(actions, 1), torch.cat(logps, 1), encoding.value_B)

    def evaluate(self, features: dict[str, Tensor], action_BM: Tensor) -> Evaluation:
        """Score known joint actions, all nodes at once: the training pass of `act`."""
        encoding = self.encode(features)
        rank_BK, (num_rows, num_nodes) = features["rank"], action_BM.shape
        choices_BCd, width = self._choices(encoding.slot_BKd), self.shape.width
        chosen_BMd = choices_BCd.gather(1, action_BM[:, :-1, None].expand(-1, -1, width))
        token_BMd = encoding.node_BMd + torch.cat((self.start_d.expand(num_rows, 1, -1), chosen_BMd), 1)
        causal = torch.full((num_nodes, num_nodes), NO_LOGIT, device=action_BM.device).triu(1)
        for block in self._decoders():
            token_BMd, _ = block(
                token_BMd, None, block.remember(encoding.slot_BKd), causal, encoding.empty_B11K
            )
        chosen_BMK = _is_slot(action_BM, rank_BK.shape[1])
        taken_BMK = F.pad(chosen_BMK.cumsum(1)[:, :-1], (0, 0, 1, 0)) > 0
        last_rank_BM = F.pad(_rank_of(action_BM, rank_BK)[:, :-1], (1, 0), value=-1)
        allowed_BMK = allowed_slots(rank_BK, taken_BMK, last_rank_BM, self._spare(num_nodes, rank_BK.device))
        logp_BMC = self._log_probabilities(
            token_BMd,
            self.pointer_key(encoding.slot_BKd),
            allowed_BMK,
            self.slot_logit(features["slot"])[..., 0],
            features["serving"],
        )
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

    def _spare(self, num_nodes: int, device: torch.device) -> Tensor | None:
        if not self.shape.imposed_order:
            return None
        return torch.arange(num_nodes - 1, -1, -1, device=device)

    def _log_probabilities(
        self, token_BQd: Tensor, keys_BKd: Tensor, allowed_BQK: Tensor, urgency_BK: Tensor, serving_BQ: Tensor
    ) -> Tensor:
        """Log-probabilities of idle and slots 1..K, (B, Q, 1 + K)."""
        logit_BQK = self.pointer_query(token_BQd) @ keys_BKd.transpose(1, 2) / math.sqrt(self.shape.width)
        logit_BQK = logit_BQK + urgency_BK[:, None]
        logit_BQK = logit_BQK + self.stay_logit * _is_slot(serving_BQ, urgency_BK.shape[1])
        logit_BQK = torch.where(allowed_BQK, logit_BQK, NO_LOGIT)
        idle_BQ1 = torch.where(allowed_BQK.any(-1, keepdim=True), NO_LOGIT, 0.0)
        return torch.cat((idle_BQ1, logit_BQK), -1).log_softmax(-1)


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


def _rank_of(action_BM: Tensor, rank_BK: Tensor) -> Tensor:
    """The urgency rank of the chosen tasks; K for idle."""
    return F.pad(rank_BK, (1, 0), value=rank_BK.shape[1]).gather(1, action_BM)


def _draw(logp_BC: Tensor, uniform_B: Tensor | None) -> Tensor:
    """Sample by inverting the cumulative distribution, or take the likeliest."""
    if uniform_B is None:
        return logp_BC.argmax(1)
    cumulative_BC = logp_BC.exp().cumsum(1)
    # Scaled to the sum, which rounding may leave just under 1: a forbidden choice adds nothing to it.
    return (cumulative_BC > (uniform_B * cumulative_BC[:, -1])[:, None]).int().argmax(1)
