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
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from mara_ray.allocator.mat.blocks import DecoderBlock, EncoderBlock
from mara_ray.allocator.mat.features import CONTEXT_FEATURES, NODE_FEATURES, RANK_FEATURE, SLOT_FEATURES
from mara_ray.allocator.mat.pointer import (
    EMPTY,
    NO_LOGIT,
    Pointer,
    choosable,
    draw,
    is_slot,
    log_probabilities,
)

FEATURE_NAMES = ("slot", "node", "context", "rank", "serving")
RANK_LOGIT_START = -4.0  # at the start, M places later in the urgency order is e^4 times less likely
POINTER_GAIN_START = 0.05
MOST_TRACED = 16  # nodes whose choices are traced together


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


Call = Callable[..., Any]


def _plainly(module: nn.Module, *inputs: Any) -> Any:
    return module(*inputs)


class MAT(nn.Module):
    """The policy and its value function, on the features of `mara_ray.allocator.mat.features`."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        self._traced: dict[tuple[int, int, bool], Call] = {}
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
        """`act` without gradients, traced once for each M and K: little Python between its operations.

        With few rows the time goes into calling operations; traced they take less than half of it. To
        trace the choices of many nodes takes seconds: above MOST_TRACED it is done for one of them.
        """
        num_nodes, num_slots = features["node"].shape[1], features["rank"].shape[1]
        shape = (num_nodes, num_slots, uniform_BM is None)

        def traced(module: nn.Module, *inputs: Any) -> Any:
            if shape not in self._traced:
                with warnings.catch_warnings():
                    # M and K become constants, as they should.
                    warnings.simplefilter("ignore", torch.jit.TracerWarning)
                    self._traced[shape] = torch.jit.trace(module, inputs, check_trace=False)
            return self._traced[shape](*inputs)

        with torch.inference_mode():
            if num_nodes > MOST_TRACED:
                return self.act(features, uniform_BM, traced)
            inputs = tuple(features[name] for name in FEATURE_NAMES)
            return Decision(*traced(_Act(self), *inputs, *(() if uniform_BM is None else (uniform_BM,))))

    def act(self, features: dict[str, Tensor], uniform_BM: Tensor | None, call: Call = _plainly) -> Decision:
        """Choose slots node by node: sampled with the given uniform numbers, or greedily without them.

        A node's step is run by `call(module, *inputs)`.
        """
        encoding = self.encode(features)
        slot_BKd, pointer = encoding.slot_BKd, self._pointer(features, encoding.slot_BKd)
        memory = tuple(block.remember(slot_BKd) for block in self._decoders())
        past = tuple(block.no_past(slot_BKd) for block in self._decoders())
        rank_BC = F.pad(pointer.rank_BK, (1, 0), value=EMPTY)
        state = (
            self.start_d.expand(slot_BKd.shape[0], 1, -1),
            torch.full_like(rank_BC[:, :1], -1) if self.shape.imposed_order else rank_BC < EMPTY,
        )
        same = (pointer.key_BdK, rank_BC, self._choices(slot_BKd), encoding.empty_B11K)
        own = [encoding.node_BMd, pointer.prior_BMK, pointer.due_BM]
        own += [] if uniform_BM is None else [uniform_BM]
        step, actions, logps = _Step(self), [], []
        for node in zip(*(part.split(1, 1) for part in own), strict=True):
            action_B1, logp_B1, state, past = call(step, node, same, memory, state, past)
            actions.append(action_B1)
            logps.append(logp_B1)
        return Decision(torch.cat(actions, 1), torch.cat(logps, 1), encoding.value_B)

    def step(
        self,
        node: tuple[Tensor, ...],
        same: tuple[Tensor, ...],
        memory: tuple[Tensor, ...],
        state: tuple[Tensor, Tensor],
        past: tuple[Tensor, ...],
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], tuple[Tensor, ...]]:
        """One node's choice, given those before; see `act`, whose loop this is.

        Args:
            node: of this node: token_B1d, prior_B1K, due_B1, and uniform_B1 unless greedy.
            same: for all nodes: key_BdK, rank_BC, choices_BCd, empty_B11K.
            memory: for all nodes: keys and values of the slots, of each decoder block.
            state: the choice before, as a token (B, 1, d); its rank (B, 1) with an imposed order, and
                without one which choices are left, bool (B, 1 + K).
            past: keys and values of the nodes before, of each decoder block.

        Returns:
            action_B1, logp_B1, and the state and past of the next node.
        """
        token_B1d, prior_B1K, due_B1, *uniform = node
        key_BdK, rank_BC, choices_BCd, empty_B11K = same
        previous_B1d, limit = state
        token_B1d, so_far = token_B1d + previous_B1d, []
        for block, slots, before in zip(self._decoders(), memory, past, strict=True):
            token_B1d, keys_values = block(token_B1d, before, slots, None, empty_B11K)
            so_far.append(keys_values)
        imposed = self.shape.imposed_order
        allowed_B1K = choosable(rank_BC[:, 1:], limit, due_B1) if imposed else limit[:, None, 1:]
        logp_BC = log_probabilities(self.pointer_query(token_B1d), key_BdK, prior_B1K, allowed_B1K)[:, 0]
        action_B1 = draw(logp_BC, *uniform)
        previous_B1d = choices_BCd.gather(1, action_B1[..., None].expand(-1, -1, choices_BCd.shape[2]))
        limit = rank_BC.gather(1, action_B1) if imposed else limit.scatter(1, action_B1, 0)
        return action_B1, logp_BC.gather(1, action_B1), (previous_B1d, limit), tuple(so_far)

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
                token_BMd,
                block.no_past(encoding.slot_BKd),
                block.remember(encoding.slot_BKd),
                causal,
                encoding.empty_B11K,
            )
        pointer = self._pointer(features, encoding.slot_BKd)
        if self.shape.imposed_order:
            rank_BM = F.pad(pointer.rank_BK, (1, 0), value=EMPTY).gather(1, action_BM)
            last_rank_BM = F.pad(rank_BM[:, :-1], (1, 0), value=-1)
            allowed_BMK = choosable(pointer.rank_BK, last_rank_BM, pointer.due_BM)
        else:
            chosen_BMK = is_slot(action_BM, pointer.rank_BK.shape[1])
            taken_BMK = F.pad(chosen_BMK.cumsum(1)[:, :-1], (0, 0, 1, 0)) > 0
            allowed_BMK = (pointer.rank_BK < EMPTY)[:, None] & ~taken_BMK
        logp_BMC = log_probabilities(
            self.pointer_query(token_BMd), pointer.key_BdK, pointer.prior_BMK, allowed_BMK
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

    def _pointer(self, features: dict[str, Tensor], slot_BKd: Tensor) -> Pointer:
        """All of a choice's score and its limits that does not depend on the choices before."""
        rank_BK, num_nodes = features["rank"], features["node"].shape[1]
        active_BK = rank_BK < rank_BK.shape[1]
        spare_M = torch.arange(num_nodes - 1, -1, -1, device=rank_BK.device)
        urgency_B1K = self.slot_logit(features["slot"]).transpose(1, 2)
        return Pointer(
            self.pointer_key(slot_BKd).transpose(1, 2) / math.sqrt(self.shape.width),
            urgency_B1K + self.stay_logit * is_slot(features["serving"], rank_BK.shape[1]),
            torch.where(active_BK, rank_BK, EMPTY),
            active_BK.sum(1, keepdim=True) - spare_M,
        )


class _Act(nn.Module):
    """`MAT.act` with tensors for arguments, as tracing wants it."""

    def __init__(self, network: MAT) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """See `MAT.act`."""
        features = dict(zip(FEATURE_NAMES, inputs, strict=False))
        uniform_BM = inputs[len(FEATURE_NAMES)] if len(inputs) > len(FEATURE_NAMES) else None
        return tuple(self.network.act(features, uniform_BM))


class _Step(nn.Module):
    """`MAT.step`, likewise."""

    def __init__(self, network: MAT) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Any) -> Any:
        """See `MAT.step`."""
        return self.network.step(*inputs)
