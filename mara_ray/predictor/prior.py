"""The prior: what the training curves say of a target before the curve itself says anything.

Axis letters: B prefixes, C curves, L points, X questions, N samples, G target levels.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mara_ray.artifacts import hash_of
from mara_ray.predictor.forecast import CurvePredictor
from mara_ray.predictor.protocol import Predictor


class LivePredictor(Predictor, CurvePredictor, Protocol):
    """A predictor that answers live and fills tables."""


def prior_steps(
    train_CL: np.ndarray, ratio_X: np.ndarray, num_seen_X: np.ndarray, num_samples: int
) -> np.ndarray:
    """Quantiles, at the levels (k + 1/2) / N, of the remaining steps over the training curves.

    A training curve needs the points until its loss falls to the ratio of its first loss, or the cap L
    if it never does; those that need no more points than were seen are left out, for the target is not
    met. If all are, one step is left.

    Args:
        train_CL: smoothed losses.
        ratio_X: target over first loss.
        num_seen_X: points seen, 1..L.
        num_samples: quantiles N.

    Returns:
        uint16 (X, N), sorted along N, at most L - n.
    """
    num_curves, length = train_CL.shape
    lowest_CL = np.minimum.accumulate(train_CL, axis=1) / train_CL[:, :1].astype(np.float64)
    # A lowest loss never rises: the points over the ratio are found by bisection.
    over_CX = np.stack([length - lowest_L[::-1].searchsorted(ratio_X, "right") for lowest_L in lowest_CL])
    needed_XC = np.sort(np.minimum(over_CX + 1, length), axis=0).T
    out_X1 = (needed_XC <= num_seen_X[:, None]).sum(1, keepdims=True)
    level_N = (np.arange(num_samples) + 0.5) / num_samples
    index_XN = out_X1 + np.floor(level_N * (num_curves - out_X1)).astype(np.int64)
    needed_XN = np.take_along_axis(needed_XC, np.minimum(index_XN, num_curves - 1), axis=1)
    left_XN = np.maximum(needed_XN - num_seen_X[:, None], 1)
    return np.minimum(left_XN, length - num_seen_X[:, None]).astype(np.uint16)


class WithPrior:
    """Answers from the prior under `warmup_points` points, and from a predictor afterwards."""

    def __init__(self, predictor: LivePredictor, prior_CL: np.ndarray, warmup_points: int = 4) -> None:
        """Wrap a predictor; `prior_CL` are the training curves, as long as those that are asked for."""
        self.name = f"{predictor.name}_prior"
        self.num_samples = predictor.num_samples
        self.warmup_points = warmup_points
        self._predictor = predictor
        self._prior_CL = np.ascontiguousarray(prior_CL, np.float32)

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        prior = self._prior_CL.shape, self._prior_CL.tobytes().hex()
        return hash_of(self.name, self._predictor.content_hash, self.warmup_points, *prior)

    def predict(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """Forecast single prefixes; see `Predictor.predict`."""
        steps_BGN = self._predictor.predict(ema_BL, num_seen_B, target_BG)
        early = np.flatnonzero(num_seen_B < self.warmup_points)
        steps_BGN[early] = self._early(ema_BL[early], num_seen_B[early], target_BG[early])
        return steps_BGN

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Forecast every prefix of curves; see `Predictor.predict_curves`."""
        steps_CLGN = self._predictor.predict_curves(ema_CL, target_CG)
        for num_seen in range(1, min(self.warmup_points, ema_CL.shape[1] + 1)):
            seen_C = np.full(len(ema_CL), num_seen)
            steps_CLGN[:, num_seen - 1] = self._early(ema_CL, seen_C, target_CG)
        return steps_CLGN

    def _early(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """The prior's answers, uint16 (B, G, N).

        Raises:
            ValueError: the curves are not as long as the training curves.
        """
        length = self._prior_CL.shape[1]
        if ema_BL.shape[1] != length:
            raise ValueError(f"curves of {ema_BL.shape[1]} points, not {length} as in training")
        ratio_BG = target_BG / ema_BL[:, :1].astype(np.float64)
        seen_BG = np.broadcast_to(num_seen_B[:, None], ratio_BG.shape)
        steps_XN = prior_steps(self._prior_CL, ratio_BG.ravel(), seen_BG.ravel(), self.num_samples)
        steps_BGN = steps_XN.reshape(*ratio_BG.shape, self.num_samples)
        unseen_BL = np.arange(length) >= num_seen_B[:, None]
        steps_BGN[np.where(unseen_BL, np.inf, ema_BL).min(1)[:, None] <= target_BG] = 0
        return steps_BGN
