"""Predictor: loss prefixes in, samples of the remaining steps out.

Axis letters: B prefixes, C curves, L points, G target levels, N samples.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from mara_ray.errors import UserError


def check_losses(ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> None:
    """Refuse what no forecast can be made of.

    Raises:
        UserError: no point was seen, or a loss that was seen, or a target, is no positive number.
    """
    length = ema_BL.shape[1]
    if not ((num_seen_B >= 1) & (num_seen_B <= length)).all():
        wrong = num_seen_B[(num_seen_B < 1) | (num_seen_B > length)][0]
        raise UserError(f"points seen: {wrong} is not in 1..{length}; give that many of the curve's points")
    seen_BL = np.arange(length) < num_seen_B[:, None]
    for name, values, counts in (("losses", ema_BL, seen_BL), ("targets", target_BG, True)):
        wrong_BX = counts & ~((values > 0) & (values < np.inf))
        if wrong_BX.any():
            row, column = np.argwhere(wrong_BX)[0]
            raise UserError(
                f"{name}: {values[row, column]:g} (row {row}, entry {column}) is no positive number; fail the"
                " task, or leave the point out"
            )


@runtime_checkable
class Predictor(Protocol):
    """What every predictor of remaining demand offers, and all an allocator's forecasts come from.

    The answer is in steps of speed-1 service still needed until the smoothed loss meets the target,
    between 0 (met already) and the remaining cap L - n (not within the cap), sorted over samples.
    """

    @property
    def name(self) -> str:
        """How it is known."""
        ...

    @property
    def num_samples(self) -> int:
        """Samples N of one forecast."""
        ...

    def predict(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """Forecast single prefixes: the live call.

        Args:
            ema_BL: smoothed losses, float32; only the first `num_seen_B` points are looked at.
            num_seen_B: points seen, int, 1..L.
            target_BG: target losses, float32.

        Returns:
            uint16 (B, G, N), sorted along N.

        Raises:
            UserError: a loss that was seen, or a target, is no positive number.
        """
        ...

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Forecast every prefix of frozen curves in one pass; entry n - 1 equals `predict` at n points.

        Returns:
            uint16 (C, L, G, N), sorted along N.
        """
        ...
