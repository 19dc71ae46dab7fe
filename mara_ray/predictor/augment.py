"""Training curves made different in ways that keep their meaning: slower or faster, shorter, noisier.

Scale needs no augmentation: only ratios of losses are ever looked at. Axis letters: C curves, L points.
"""

from __future__ import annotations

import numpy as np

from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import EMA_ALPHA


def augment(
    ema_CL: np.ndarray, rng: np.random.Generator, config: PredictorConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Disturb every second curve, on average, in each of three ways.

    * Time runs faster or slower by a factor up to `max_stretch` (log-uniform); a faster curve ends earlier.
    * The curve ends earlier, after at least `shortest_share` of its points, so that horizons differ.
    * Smoothed noise of a relative size up to `max_noise` (uniform) multiplies the losses.

    Returns:
        Losses float32 (C, L), the last one repeated after the curve's end, and the points (C,) at which the
        curves end.
    """
    num_curves, length = ema_CL.shape
    chosen_3C = rng.random((3, num_curves)) < 0.5
    factor_C = np.exp(chosen_3C[0] * rng.uniform(-1, 1, num_curves) * np.log(config.max_stretch))
    end_C = 1 + np.floor((length - 1) / np.maximum(factor_C, 1)).astype(np.int64)
    kept_C = np.where(chosen_3C[1], rng.uniform(config.shortest_share, 1, num_curves), 1.0)
    end_C = np.maximum(2, np.round(kept_C * end_C).astype(np.int64))

    point_CL = np.minimum(np.arange(length), end_C[:, None] - 1) * factor_C[:, None]
    left_CL = np.minimum(point_CL.astype(np.int64), length - 2)
    row_C1 = np.arange(num_curves)[:, None]
    log_CL = np.log(ema_CL, dtype=np.float64)
    log_CL = log_CL[row_C1, left_CL] + (point_CL - left_CL) * (
        log_CL[row_C1, left_CL + 1] - log_CL[row_C1, left_CL]
    )
    size_C1 = (chosen_3C[2] * rng.uniform(0, config.max_noise, num_curves))[:, None]
    shock_CL = rng.standard_normal(ema_CL.shape)
    noise_CL = np.empty_like(shock_CL)
    running_C = np.zeros(num_curves)
    for point in range(length):  # what the smoothing of the losses does to the noise of single points
        running_C = (1 - EMA_ALPHA) * running_C + EMA_ALPHA * shock_CL[:, point]
        noise_CL[:, point] = running_C
    spread = np.sqrt(EMA_ALPHA / (2 - EMA_ALPHA))
    return np.exp(log_CL + size_C1 * noise_CL / spread).astype(np.float32), end_C
