"""WLS: the parametric predictor of LARA, a power law fitted by recursive weighted least squares.

Axis letters: B prefixes, C curves, L points, G target levels, N samples (1 here).
"""

from __future__ import annotations

import numpy as np

from mara_ray.artifacts import hash_of
from mara_ray.predictor.protocol import check_losses

FORGETTING = 0.9  # the paper's
RIDGE = 1e-3
FLAT_SLOPE = -1e-6  # a fit no steeper than this never reaches its target


class WLSPredictor:
    """Fits ln loss = slope * ln s + intercept (s = 1..n points) with weights 0.9^age and extrapolates.

    The target is met at s* = exp((ln target - intercept) / slope); the answer is s* - n, rounded up
    and clipped to [0, L - n]. Under `warmup_points` points, or without a falling fit, it is the cap.
    """

    name = "wls"
    num_samples = 1

    def __init__(self, warmup_points: int = 4) -> None:
        self.warmup_points = warmup_points

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        return hash_of(self.name, self.warmup_points, FORGETTING, RIDGE, FLAT_SLOPE)

    def predict(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """Forecast single prefixes; see `Predictor.predict`."""
        check_losses(ema_BL, num_seen_B, target_BG)
        slope_BL, intercept_BL = fit_power_law(ema_BL[:, : num_seen_B.max(initial=1)])
        row_B, last_B = np.arange(len(ema_BL)), num_seen_B - 1
        steps_BG = self._remaining(
            slope_BL[row_B, last_B, None],
            intercept_BL[row_B, last_B, None],
            num_seen_B[:, None],
            target_BG,
            ema_BL.shape[1],
        )
        lowest_BL = np.minimum.accumulate(ema_BL, axis=1)
        steps_BG[lowest_BL[row_B, last_B, None] <= target_BG] = 0
        return steps_BG[..., None]

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Forecast every prefix of curves; see `Predictor.predict_curves`."""
        slope_CL, intercept_CL = fit_power_law(ema_CL)
        length = ema_CL.shape[1]
        seen_L1 = np.arange(1, length + 1)[:, None]
        target_C1G = target_CG[:, None]
        steps_CLG = self._remaining(slope_CL[..., None], intercept_CL[..., None], seen_L1, target_C1G, length)
        lowest_CL = np.minimum.accumulate(ema_CL, axis=1)
        steps_CLG[lowest_CL[..., None] <= target_C1G] = 0
        return steps_CLG[..., None]

    def _remaining(
        self,
        slope: np.ndarray,
        intercept: np.ndarray,
        num_seen: np.ndarray,
        target: np.ndarray,
        length_points: int,
    ) -> np.ndarray:
        """Extrapolate fits to targets, uint16; all arguments broadcast."""
        cap = length_points - num_seen
        falling = (slope < FLAT_SLOPE) & (num_seen >= self.warmup_points)
        with np.errstate(over="ignore"):
            crossing = np.exp((np.log(target, dtype=np.float64) - intercept) / np.where(falling, slope, -1.0))
        return np.where(falling, np.ceil(np.clip(crossing - num_seen, 0, cap)), cap).astype(np.uint16)


def fit_power_law(ema_CL: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and intercepts of every prefix, float64 (C, L), by the one-pass recursion of the paper.

    A <- 0.9 A + x x', b <- 0.9 b + r x with x = (ln s, 1), r = ln loss; theta = (ridge I + A)^-1 b.
    """
    slope_CL = np.empty(ema_CL.shape)
    intercept_CL = np.empty(ema_CL.shape)
    xx = x = one = 0.0  # the entries of A do not depend on the losses
    xr_C = np.zeros(len(ema_CL))
    r_C = np.zeros(len(ema_CL))
    for point in range(ema_CL.shape[1]):
        log_service = np.log(point + 1.0)
        log_loss_C = np.log(ema_CL[:, point], dtype=np.float64)
        xx = FORGETTING * xx + log_service * log_service
        x = FORGETTING * x + log_service
        one = FORGETTING * one + 1.0
        xr_C = FORGETTING * xr_C + log_service * log_loss_C
        r_C = FORGETTING * r_C + log_loss_C
        determinant = (xx + RIDGE) * (one + RIDGE) - x * x
        slope_CL[:, point] = ((one + RIDGE) * xr_C - x * r_C) / determinant
        intercept_CL[:, point] = ((xx + RIDGE) * r_C - x * xr_C) / determinant
    return slope_CL, intercept_CL
