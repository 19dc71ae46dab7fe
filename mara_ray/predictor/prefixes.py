"""What predictors share that are asked for prefixes of curves: live calls, tables, and the plain cases.

Axis letters: B prefixes, C curves, L points, G target levels, N samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from mara_ray.predictor.protocol import check_losses


class PrefixPredictor(ABC):
    """A predictor that answers for chosen prefixes of curves; the live call and the table come from that.

    Attributes:
        name: how it is known.
        warmup_points: under so many points the answer is the remaining cap.
        num_samples: samples N of one forecast.
    """

    name: str

    @property
    @abstractmethod
    def warmup_points(self) -> int:
        """Under so many points the answer is the remaining cap."""

    @property
    @abstractmethod
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""

    @property
    @abstractmethod
    def num_samples(self) -> int:
        """Samples N of one forecast."""

    @abstractmethod
    def steps(
        self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray
    ) -> np.ndarray:
        """Steps still needed where that takes thought: enough points, some left; (B, G, N), sorted."""

    def predict(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """Forecast single prefixes; see `Predictor.predict`."""
        check_losses(ema_BL, num_seen_B, target_BG)
        row_B = np.arange(len(ema_BL))
        unseen_BL = np.arange(ema_BL.shape[1]) >= num_seen_B[:, None]
        known_BL = np.where(unseen_BL, ema_BL[row_B, num_seen_B - 1, None], ema_BL)
        return self.predict_prefixes(known_BL, row_B, num_seen_B, target_BG)

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Forecast every prefix of curves; see `Predictor.predict_curves`."""
        num_curves, length = ema_CL.shape
        curve_B = np.repeat(np.arange(num_curves), length)
        num_seen_B = np.tile(np.arange(1, length + 1), num_curves)
        steps_BGN = self.predict_prefixes(ema_CL, curve_B, num_seen_B, target_CG[curve_B])
        return steps_BGN.reshape(num_curves, length, target_CG.shape[1], self.num_samples)

    def predict_prefixes(
        self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray
    ) -> np.ndarray:
        """Forecast chosen prefixes of curves.

        Args:
            ema_CL: smoothed losses, float32.
            curve_B: which curve.
            num_seen_B: points seen of it, 1..L.
            target_BG: target losses.

        Returns:
            uint16 (B, G, N), sorted along N.
        """
        horizon_B = ema_CL.shape[1] - num_seen_B
        steps_BGN = np.empty((*target_BG.shape, self.num_samples), np.uint16)
        steps_BGN[:] = horizon_B[:, None, None]
        ready = np.flatnonzero((num_seen_B >= self.warmup_points) & (horizon_B > 0))
        if len(ready):
            steps_BGN[ready] = self.steps(ema_CL, curve_B[ready], num_seen_B[ready], target_BG[ready])
        lowest_CL = np.minimum.accumulate(ema_CL, axis=1)
        steps_BGN[lowest_CL[curve_B, num_seen_B - 1, None] <= target_BG] = 0
        return steps_BGN
