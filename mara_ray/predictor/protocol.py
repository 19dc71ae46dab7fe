"""Predictor: loss prefixes in, samples of the remaining steps out.

Axis letters: B prefixes, C curves, L points, G target levels, N samples.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Predictor(Protocol):
    """What every predictor of remaining demand offers, and all an allocator's forecasts come from.

    The answer is in steps of speed-1 service still needed until the smoothed loss meets the target,
    between 0 (met already) and the remaining cap L - n (not within the cap), sorted over samples.
    """

    name: str
    num_samples: int

    def predict(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """Forecast single prefixes: the live call.

        Args:
            ema_BL: smoothed losses, float32; only the first `num_seen_B` points are looked at.
            num_seen_B: points seen, int, 1..L.
            target_BG: target losses, float32.

        Returns:
            uint16 (B, G, N), sorted along N.
        """
        ...

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Forecast every prefix of frozen curves in one pass; entry n - 1 equals `predict` at n points.

        Returns:
            uint16 (C, L, G, N), sorted along N.
        """
        ...
