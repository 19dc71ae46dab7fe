"""The power law with an asymptote: a bounded least-squares fit to every prefix, extrapolated.

Axis letters: B prefixes, C curves, L points, G target levels, N samples (1 here), J exponents of the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mara_ray.artifacts import hash_of
from mara_ray.predictor.protocol import check_losses

LOWEST_EXPONENT = 0.01  # over 300 points, within 0.2 % of the loss of a line in ln s
HIGHEST_EXPONENT = 3.0
NUM_EXPONENTS = 32
LOG_EXPONENT_J = np.linspace(np.log(LOWEST_EXPONENT), np.log(HIGHEST_EXPONENT), NUM_EXPONENTS)
EXPONENT_J = np.exp(LOG_EXPONENT_J)
SPACING = LOG_EXPONENT_J[1] - LOG_EXPONENT_J[0]
HALVINGS = 3  # of that spacing, before the parabola

Line = tuple[np.ndarray, np.ndarray, np.ndarray]  # a, b and the squared error


class Sums(NamedTuple):
    """What least squares needs of a prefix's points (x, y), x = s^-c: sums, of shapes that broadcast."""

    num: np.ndarray
    x: np.ndarray
    xx: np.ndarray
    y: np.ndarray
    xy: np.ndarray
    yy: np.ndarray


class PowerLawPredictor:
    """Fits loss = a + b s^-c (s = 1..n points) and extrapolates to s* = (b / (target - a))^(1 / c).

    Plain least squares on the losses under 0 <= a <= the lowest loss seen, b >= 0, 0.01 <= c <= 3. For a
    given c the best (a, b) within the bounds is in closed form; that leaves a search in c alone (variable
    projection, Golub and Pereyra 1973), here over a grid, then by halving its spacing three times and by
    one parabola step. It is no iteration to convergence: of several minima one between two points of the
    grid can be missed, and c is right to 1 %, or to about 0.1 % where a is off its bounds.

    The answer is s* - n, rounded up and clipped to [1, L - n]; 0 if the target is met already; the cap
    L - n if the target is at the asymptote or under it, or under `warmup_points` points.
    """

    name = "power"
    num_samples = 1

    def __init__(self, warmup_points: int = 4) -> None:
        self.warmup_points = warmup_points

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        return hash_of(self.name, self.warmup_points, EXPONENT_J.tolist(), HALVINGS)

    def predict(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """Forecast single prefixes; see `Predictor.predict`."""
        check_losses(ema_BL, num_seen_B, target_BG)
        return self._forecast(ema_BL, np.arange(len(ema_BL)), num_seen_B, target_BG)

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Forecast every prefix of curves; see `Predictor.predict_curves`."""
        num_curves, length = ema_CL.shape
        steps_CLGN = np.empty((num_curves, length, target_CG.shape[1], 1), np.uint16)
        seen_L, row_L = np.arange(1, length + 1), np.zeros(length, np.int64)
        for curve in range(num_curves):  # all prefixes of one curve at once are a few cache-sized arrays
            target_LG = np.broadcast_to(target_CG[curve], (length, target_CG.shape[1]))
            steps_CLGN[curve] = self._forecast(ema_CL[curve, None], row_L, seen_L, target_LG)
        return steps_CLGN

    def _forecast(
        self, ema_CL: np.ndarray, row_B: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray
    ) -> np.ndarray:
        """Steps still needed, uint16 (B, G, 1), by prefixes of `num_seen_B` points of the curves `row_B`."""
        asymptote_B, scale_B, exponent_B = fit_with_asymptote(ema_CL, row_B, num_seen_B)
        cap_B1 = ema_CL.shape[1] - num_seen_B[:, None]
        above_BG = target_BG.astype(np.float64) - asymptote_B[:, None]
        reached_BG = (above_BG > 0) & (num_seen_B >= self.warmup_points)[:, None]
        ratio_BG = scale_B[:, None] / np.where(reached_BG, above_BG, 1.0)
        with np.errstate(over="ignore"):
            crossing_BG = ratio_BG ** (1 / exponent_B[:, None])
        left_BG = np.ceil(np.minimum(np.maximum(crossing_BG - num_seen_B[:, None], 1), cap_B1))
        steps_BG = np.where(reached_BG, left_BG, cap_B1).astype(np.uint16)
        lowest_B = np.minimum.accumulate(ema_CL, axis=1)[row_B, num_seen_B - 1]
        steps_BG[lowest_B[:, None] <= target_BG] = 0
        return steps_BG[..., None]


def fit_with_asymptote(
    ema_CL: np.ndarray, row_B: np.ndarray, num_seen_B: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least-squares a, b, c of loss = a + b s^-c for prefixes of curves, under the predictor's bounds.

    1. For each c of the grid, the sums of x = s^-c, x^2 and x loss over every prefix, by cumulation.
    2. The best a and b, and their squared error, in closed form (`_best_line`); the c of least error.
    3. Three times, with half the spacing each: the least of the errors at that c and on both sides of it,
       from sums of the prefix's own. Then the vertex of the parabola through three errors at half the
       spacing again. (Parabolas alone go astray where a reaches a bound: the error's curvature jumps there.)

    Losses enter as loss / first loss - 1: this makes the fit free of the loss's scale, and keeps nearly
    constant curves from drowning in rounding.

    Args:
        ema_CL: smoothed losses.
        row_B: the curve of each prefix.
        num_seen_B: its points, 1..L; no later loss is looked at.

    Returns:
        a, b and c, float64 (B,) each.
    """
    first_C1 = ema_CL[:, :1].astype(np.float64)
    y_CL = ema_CL / first_C1 - 1
    end_B = num_seen_B - 1
    log_service_L = np.log(np.arange(1.0, y_CL.shape[1] + 1))
    highest_B = np.minimum.accumulate(y_CL, axis=1)[row_B, end_B]

    x_LJ = np.exp(-EXPONENT_J * log_service_L[:, None])
    grid = Sums(
        num_seen_B[:, None].astype(np.float64),
        np.cumsum(x_LJ, axis=0)[end_B],
        np.cumsum(x_LJ**2, axis=0)[end_B],
        np.cumsum(y_CL, axis=1)[row_B, end_B, None],
        np.cumsum(y_CL[..., None] * x_LJ, axis=1)[row_B, end_B],
        np.cumsum(y_CL**2, axis=1)[row_B, end_B, None],
    )
    best_B = _best_line(grid, highest_B[:, None])[2].argmin(axis=1)

    seen_BL = np.arange(y_CL.shape[1]) < num_seen_B[:, None]
    y_BL = np.where(seen_BL, y_CL[row_B], 0.0)

    def line_at(log_exponent_B: np.ndarray) -> Line:
        x_BL = np.exp(-np.exp(log_exponent_B)[:, None] * log_service_L) * seen_BL
        x_B, xx_B, xy_B = x_BL.sum(1), (x_BL**2).sum(1), (x_BL * y_BL).sum(1)
        return _best_line(Sums(grid.num[:, 0], x_B, xx_B, grid.y[:, 0], xy_B, grid.yy[:, 0]), highest_B)

    log_exponent_B = _refined(LOG_EXPONENT_J[best_B], line_at)
    offset_B, scale_B, _ = line_at(log_exponent_B)
    first_B = first_C1[row_B, 0]
    return first_B * (1 + offset_B), first_B * scale_B, np.exp(log_exponent_B)


def _refined(log_exponent_B: np.ndarray, line_at: Callable[[np.ndarray], Line]) -> np.ndarray:
    """The ln c of least error near those given, as step 3 of `fit_with_asymptote` says."""
    spacings = SPACING / 2.0 ** np.arange(1, HALVINGS + 2)
    for spacing in spacings:
        tried_3B = log_exponent_B + spacing * np.array([[-1.0], [0.0], [1.0]])
        tried_3B = np.clip(tried_3B, LOG_EXPONENT_J[0], LOG_EXPONENT_J[-1])
        error_3B = np.stack([line_at(tried_B)[2] for tried_B in tried_3B])
        if spacing > spacings[-1]:
            log_exponent_B = np.take_along_axis(tried_3B, error_3B.argmin(axis=0)[None], axis=0)[0]
        else:
            log_exponent_B = log_exponent_B + spacing * _vertex(*error_3B)
    return np.clip(log_exponent_B, LOG_EXPONENT_J[0], LOG_EXPONENT_J[-1])


def _best_line(sums: Sums, highest: np.ndarray) -> Line:
    """Least-squares (a, b) of y = a + b x with -1 <= a <= `highest` and b >= 0, and the squared error.

    The squared error, minimised over b >= 0, is convex in a: so its best a within bounds is its free best
    a, clipped. That is the unbounded solution's a; where the b of that is negative, it is the mean of y,
    but both are over `highest`, the least of y.
    """
    spread = sums.num * sums.xx - sums.x**2
    slope = (sums.num * sums.xy - sums.x * sums.y) / np.where(spread > 0, spread, np.inf)
    free = (sums.y - sums.x * slope) / sums.num
    offset = np.minimum(np.maximum(free, -1.0), highest)
    scale = np.maximum(sums.xy - offset * sums.x, 0) / sums.xx
    error = sums.yy - 2 * offset * sums.y - 2 * scale * sums.xy
    error += sums.num * offset**2 + 2 * offset * scale * sums.x + scale**2 * sums.xx
    return offset, scale, error


def _vertex(before_B: np.ndarray, middle_B: np.ndarray, after_B: np.ndarray) -> np.ndarray:
    """Where the parabola through three errors at -1, 0, 1 is least, within -1..1; 0 if it has no least."""
    curvature_B = before_B - 2 * middle_B + after_B
    vertex_B = (before_B - after_B) / np.where(curvature_B > 0, 2 * curvature_B, np.inf)
    return np.minimum(np.maximum(vertex_B, -1.0), 1.0)
