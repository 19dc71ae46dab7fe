"""The prior: what the training curves say of a target before the curve itself says anything.

Axis letters: B prefixes, C curves, L points, X questions, N samples, G target levels.
"""

from __future__ import annotations

import numpy as np

from mara_ray.artifacts import hash_of
from mara_ray.predictor.prefixes import PrefixPredictor


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


class WithPrior(PrefixPredictor):
    """Answers from the prior before a predictor's warm-up is over, and from the predictor afterwards."""

    warmup_points = 1

    def __init__(self, predictor: PrefixPredictor, prior_CL: np.ndarray) -> None:
        """Wrap a predictor; `prior_CL` are the training curves, as long as those that are asked for."""
        self.name = f"{predictor.name}_prior"
        self._predictor = predictor
        self._prior_CL = np.ascontiguousarray(prior_CL, np.float32)

    @property
    def num_samples(self) -> int:
        """Samples N of one forecast."""
        return self._predictor.num_samples

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        prior = self._prior_CL.shape, self._prior_CL.tobytes().hex()
        return hash_of(self.name, self._predictor.content_hash, *prior)

    def steps(
        self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray
    ) -> np.ndarray:
        """Ask the prior early, and the predictor later.

        Raises:
            ValueError: the curves are not as long as the training curves.
        """
        length = self._prior_CL.shape[1]
        if ema_CL.shape[1] != length:
            raise ValueError(f"curves of {ema_CL.shape[1]} points, not {length} as in training")
        steps_BGN = np.empty((*target_BG.shape, self.num_samples), np.uint16)
        early_B = num_seen_B < self._predictor.warmup_points
        ratio_XG = target_BG[early_B] / ema_CL[curve_B[early_B], :1].astype(np.float64)
        seen_XG = np.broadcast_to(num_seen_B[early_B, None], ratio_XG.shape)
        early_steps = prior_steps(self._prior_CL, ratio_XG.ravel(), seen_XG.ravel(), self.num_samples)
        steps_BGN[early_B] = early_steps.reshape(*ratio_XG.shape, self.num_samples)
        if not early_B.all():
            steps_BGN[~early_B] = self._predictor.steps(
                ema_CL, curve_B[~early_B], num_seen_B[~early_B], target_BG[~early_B]
            )
        return steps_BGN
