"""The nearest-curves predictor: the futures of the training curves that looked most alike so far.

Axis letters: B prefixes, C training curves (or curves asked for), L points, P prefixes at hand, K
neighbours, N samples, D features, J future points, G target levels.
A rival of the flow that learns nothing: it remembers. Everything is scale-free.
"""

from __future__ import annotations

import numpy as np

from mara_ray.artifacts import hash_of
from mara_ray.predictor.prefixes import PrefixPredictor

LAGS = (4, 8, 16, 32, 64, 128)  # points back to which the loss is compared; and the first point
NUM_NEIGHBOURS = 12
NUM_SAMPLES = 8
SMALLEST_DROP = 1e-3  # in log loss: less is noise
SMALLEST_SCALE = 1e-6  # of a feature: training curves that are all alike
PREFIXES_PER_PASS = 64


class HazardPredictor(PrefixPredictor):
    """Weighted quantiles of the remaining steps of the nearest training curves at the same point.

    Curves are compared by asinh(x / median |x|) of their log-drops x since the first point and since
    `LAGS` points ago, each over its standard deviation, median and deviation being those of the training
    curves at that point; the asinh lets small drops count beside large ones. The weight of a neighbour is
    exp(-d^2 / mean d^2) of its distance d. Its future, in proportion to its loss at that point, gives the
    steps to the target; a neighbour that never gets there counts as the remaining cap.
    """

    name = "hazard"

    def __init__(
        self,
        train_CL: np.ndarray,
        warmup_points: int = 4,
        num_neighbours: int = NUM_NEIGHBOURS,
        num_samples: int = NUM_SAMPLES,
    ) -> None:
        self.train_CL = np.ascontiguousarray(train_CL, np.float32)
        self._warmup_points = warmup_points
        self.num_neighbours = num_neighbours
        self._num_samples = num_samples
        self._log_CL = np.log(self.train_CL, dtype=np.float64)

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        settings = (
            self.warmup_points,
            self.num_neighbours,
            self.num_samples,
            LAGS,
            SMALLEST_DROP,
            SMALLEST_SCALE,
        )
        return hash_of(self.name, settings, self.train_CL.shape, self.train_CL.tobytes().hex())

    @property
    def warmup_points(self) -> int:
        """Under so many points the answer is the remaining cap."""
        return self._warmup_points

    @property
    def num_samples(self) -> int:
        """Samples N of one forecast."""
        return self._num_samples

    def steps(
        self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray
    ) -> np.ndarray:
        """Ask the nearest curves.

        Raises:
            ValueError: the curves are not as long as the training curves.
        """
        length = ema_CL.shape[1]
        if length != self.train_CL.shape[1]:
            raise ValueError(f"curves of {length} points, not {self.train_CL.shape[1]} as in training")
        steps_BGN = np.empty((*target_BG.shape, self.num_samples), np.uint16)
        log_CL = np.log(ema_CL, dtype=np.float64)
        log_target_BG = np.log(target_BG, dtype=np.float64)
        for num_seen in np.unique(num_seen_B):
            same = np.flatnonzero(num_seen_B == num_seen)
            for first in range(0, len(same), PREFIXES_PER_PASS):
                part = same[first : first + PREFIXES_PER_PASS]
                log_PL = log_CL[curve_B[part]]
                gap_PG = log_target_BG[part] - log_PL[:, num_seen - 1, None]
                steps_BGN[part] = self._steps(log_PL, int(num_seen), gap_PG)
        return steps_BGN

    def neighbours(self, log_PL: np.ndarray, num_seen: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest training curves of prefixes of `num_seen` points, nearest first.

        Returns:
            Rows of `train_CL` (P, K), and their weights (P, K).
        """
        train_CD, asked_PD = drops(self._log_CL, num_seen), drops(log_PL, num_seen)
        median_D = np.maximum(np.median(np.abs(train_CD), axis=0), SMALLEST_DROP)
        train_CD, asked_PD = np.arcsinh(train_CD / median_D), np.arcsinh(asked_PD / median_D)
        scale_D = np.maximum(train_CD.std(0), SMALLEST_SCALE)
        square_PC = np.zeros((len(log_PL), len(train_CD)))
        for feature, scale in enumerate(scale_D):  # in a fixed order: the same bits in every batch
            square_PC += ((asked_PD[:, feature, None] - train_CD[:, feature]) / scale) ** 2
        nearest_PK = np.argsort(square_PC, axis=1, kind="stable")[:, : self.num_neighbours]
        square_PK = np.take_along_axis(square_PC, nearest_PK, axis=1)
        mean_P1 = square_PK.mean(1, keepdims=True)
        return nearest_PK, np.exp(-square_PK / np.maximum(mean_P1, 1e-12))

    def _steps(self, log_PL: np.ndarray, num_seen: int, gap_PG: np.ndarray) -> np.ndarray:
        """Steps until the neighbours' log loss has changed by the gaps: float64 (P, G, N)."""
        nearest_PK, weight_PK = self.neighbours(log_PL, num_seen)
        future_CJ = self._log_CL[:, num_seen:] - self._log_CL[:, num_seen - 1, None]
        lowest_PKJ = np.minimum.accumulate(future_CJ[nearest_PK], axis=2)
        over_PGKJ = lowest_PKJ[:, None] > gap_PG[:, :, None, None]
        needed_PGK = np.minimum(over_PGKJ.sum(3) + 1, future_CJ.shape[1])
        return weighted_quantiles(needed_PGK, weight_PK[:, None], self.num_samples)


def drops(log_CL: np.ndarray, num_seen: int) -> np.ndarray:
    """What prefixes are compared by: log-drops since the first point and since `LAGS` ago, (C, D)."""
    last = num_seen - 1
    back_D = np.array([0, *(max(last - lag, 0) for lag in LAGS)])
    return np.ascontiguousarray(log_CL[:, back_D] - log_CL[:, last, None])


def weighted_quantiles(values_K: np.ndarray, weight_K: np.ndarray, num_samples: int) -> np.ndarray:
    """The smallest values that hold (k + 1/2) / N of the weight: leading axes that broadcast, (..., N)."""
    order_K = np.argsort(values_K, axis=-1, kind="stable")
    sorted_K = np.take_along_axis(values_K, order_K, axis=-1)
    weight_K = np.take_along_axis(np.broadcast_to(weight_K, values_K.shape), order_K, axis=-1)
    total_K = np.cumsum(weight_K, axis=-1)
    level_N = (np.arange(num_samples) + 0.5) / num_samples
    under_KN = total_K[..., None] < level_N * total_K[..., -1:, None]
    return np.take_along_axis(sorted_K, under_KN.sum(-2), axis=-1)
