"""Recurrent networks by name, and a GRU for short sequences on a CPU.

Axis letters: B sequences of a mini-batch, L steps, D features, H hidden units, G three gates of H units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn


class SmallGRU(nn.GRU):
    """One layer of nn.GRU on a CPU, batch first, stepped in NumPy with its backward pass written out.

    For few and small steps nn.GRU is mostly the overhead of its operations, which is several times
    smaller in NumPy. Parameters, outputs and gradients are those of nn.GRU.
    """

    def forward(self, inputs_BLD: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        """Outputs (B, L, H), from a hidden state of zeros."""
        (input_weight, weight, input_bias, bias), *_ = self.all_weights
        inputs_LBG = nn.functional.linear(inputs_BLD.transpose(0, 1), input_weight, input_bias)
        return _GRUSteps.apply(inputs_LBG, weight, bias).transpose(0, 1), None


class _GRUSteps(torch.autograd.Function):
    """The recurrence alone: Cho et al. (2014), in the form of torch.nn.GRU."""

    @staticmethod
    def forward(
        context: Any, inputs_LBG: torch.Tensor, weight_GH: torch.Tensor, bias_G: torch.Tensor
    ) -> torch.Tensor:
        """Hidden states (L, B, H)."""
        inputs, weight, bias = (tensor.detach().numpy() for tensor in (inputs_LBG, weight_GH, bias_G))
        length, batch, gates = inputs.shape
        units = gates // 3
        hidden = np.zeros((length + 1, batch, units), np.float32)
        both = np.empty((length, batch, 2 * units), np.float32)  # the reset gates, then the update gates
        new, recurrent = np.empty((2, length, batch, units), np.float32)
        for step in range(length):
            gates_BG = hidden[step] @ weight.T + bias
            recurrent[step] = gates_BG[:, 2 * units :]
            # The logistic function by tanh, which cannot overflow.
            both[step] = 0.5 + 0.5 * np.tanh(0.5 * (inputs[step, :, : 2 * units] + gates_BG[:, : 2 * units]))
            reset, update = both[step, :, :units], both[step, :, units:]
            new[step] = np.tanh(inputs[step, :, 2 * units :] + reset * recurrent[step])
            hidden[step + 1] = new[step] + update * (hidden[step] - new[step])
        context.kept = weight, hidden, both, new, recurrent
        return torch.from_numpy(hidden[1:])

    @staticmethod
    def backward(context: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients of inputs, weight and bias."""
        weight, hidden, both, new, recurrent = context.kept
        grad = grads[0].numpy()
        length, batch, units = grad.shape
        reset, update = both[..., :units], both[..., units:]
        to_new = (1 - update) * (1 - new**2)
        to_update = (hidden[:-1] - new) * update * (1 - update)
        to_reset = recurrent * reset * (1 - reset)
        gate_grad = np.empty((length, batch, 3 * units), np.float32)
        new_grad = np.empty((length, batch, units), np.float32)
        carried = np.zeros((batch, units), np.float32)
        for step in reversed(range(length)):
            carried = carried + grad[step]
            new_grad[step] = carried * to_new[step]
            gate_grad[step, :, :units] = new_grad[step] * to_reset[step]
            gate_grad[step, :, units : 2 * units] = carried * to_update[step]
            gate_grad[step, :, 2 * units :] = new_grad[step] * reset[step]
            carried = carried * update[step] + gate_grad[step] @ weight
        weight_grad = gate_grad.reshape(-1, 3 * units).T @ hidden[:-1].reshape(-1, units)
        input_grad = np.concatenate([gate_grad[..., : 2 * units], new_grad], -1)
        return tuple(map(torch.from_numpy, (input_grad, weight_grad, gate_grad.sum((0, 1)))))


RECURRENT: dict[str, Callable[..., nn.Module]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "small gru": SmallGRU,
}
