"""The GRU in NumPy is torch's GRU: outputs and gradients."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.curves.models.recurrent import SmallGRU


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 6), st.integers(1, 9), st.integers(0, 99))
def test_small_gru_is_gru(batch: int, length: int, features: int, units: int, seed: int) -> None:
    torch.manual_seed(seed)
    reference = torch.nn.GRU(features, units, batch_first=True)
    small = SmallGRU(features, units, batch_first=True)
    small.load_state_dict(reference.state_dict())
    inputs = torch.randn(batch, length, features)
    weight = torch.randn(batch, length, units)
    results = []
    for network in (reference, small):
        own = inputs.clone().requires_grad_()
        outputs, _ = network(own)
        (outputs * weight).sum().backward()
        results.append([outputs, own.grad, *(parameter.grad for parameter in network.parameters())])
    for expected, got in zip(*results, strict=True):
        assert torch.allclose(expected, got, atol=1e-5, rtol=1e-4)


def test_large_inputs_do_not_overflow() -> None:
    small = SmallGRU(1, 2, batch_first=True)
    outputs, _ = small(torch.tensor([[[1e4], [-1e4]]]))
    assert bool((outputs.abs() <= 1).all())
