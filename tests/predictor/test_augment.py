"""Augmented curves keep their meaning: time and length change as they should, the rest stays."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.config import PredictorConfig
from mara_ray.predictor.augment import augment


def curves(num_curves: int = 40, length: int = 100) -> np.ndarray:
    rng = np.random.default_rng(0)
    rate_C1 = rng.uniform(0.2, 1, (num_curves, 1))
    return (np.arange(1, length + 1) ** -rate_C1).astype(np.float32)


def test_only_shortened() -> None:
    ema_CL = curves()
    augmented_CL, end_C = augment(ema_CL, np.random.default_rng(1), PredictorConfig(shortest_share=0.3))
    assert 10 < (end_C == 100).sum() < 30 and end_C.min() >= 30
    for before_L, after_L, end in zip(ema_CL, augmented_CL, end_C, strict=True):
        assert np.allclose(after_L[:end], before_L[:end], rtol=1e-6)
        assert (after_L[end:] == after_L[end - 1]).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999))
def test_time_runs_faster_or_slower(seed: int) -> None:
    """A curve exp(-t) on the grid becomes exp(-f t), which tells its factor; it ends where the data do."""
    log_slope = 0.01
    ema_CL = np.exp(-log_slope * np.arange(100, dtype=np.float32))[None].repeat(20, 0)
    augmented_CL, end_C = augment(ema_CL, np.random.default_rng(seed), PredictorConfig(max_stretch=2.0))
    factor_C = -np.log(augmented_CL[:, 10]) / (10 * log_slope)
    assert (factor_C > 0.499).all() and (factor_C < 2.001).all()
    for after_L, end, factor in zip(augmented_CL, end_C, factor_C, strict=True):
        assert np.allclose(np.log(after_L[:end]), -log_slope * factor * np.arange(end), atol=1e-4)
        assert (end - 1) * factor <= 99.01


def test_noise_is_smooth_relative_and_bounded_in_size() -> None:
    ema_CL, noisy = np.ones((200, 100), np.float32), PredictorConfig(max_noise=0.05)
    augmented_CL, _ = augment(ema_CL, np.random.default_rng(2), noisy)
    deviation_CL = np.log(augmented_CL)
    assert (np.abs(deviation_CL).max(1) == 0).sum() > 60, "every second curve, on average"
    assert 0.01 < deviation_CL[:, 50:].std() < 0.05
    assert np.abs(np.diff(deviation_CL, axis=1)).mean() < 0.5 * np.abs(deviation_CL).mean()
    scaled_CL, _ = augment(7 * ema_CL, np.random.default_rng(2), noisy)
    assert np.allclose(scaled_CL, 7 * augmented_CL, rtol=1e-5)
