"""A forecast for a training from elsewhere: of any length and scale, in its own steps.

Axis letters: L points of the predictor's grid, N samples, H bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mara_ray.curves.bank import smooth
from mara_ray.curves.importers import OutsideCurve, resample
from mara_ray.errors import UserError
from mara_ray.predictor.flow import FlowPredictor

GRID_POINTS = 300  # of the whole training, what was seen and what is to come: the length of the bank's curves


@dataclass(frozen=True)
class OutsideForecast:
    """What is expected of one training.

    Attributes:
        name: the curve's.
        first_step, step_width: step of grid point 0, and steps between grid points.
        num_seen: points n of the grid that were seen.
        ema_L: smoothed losses seen, nan after n.
        means_NH: sampled futures as mean losses of H bins over the rest of the grid.
        remaining_steps_N: sampled steps until the target, sorted; the horizon where it is not met within it.
        horizon_steps: steps looked ahead.
        target: the loss to reach.
    """

    name: str
    first_step: float
    step_width: float
    num_seen: int
    ema_L: np.ndarray
    means_NH: np.ndarray
    remaining_steps_N: np.ndarray
    horizon_steps: float
    target: float

    @property
    def probability(self) -> float:
        """The share of samples that meet the target within the horizon."""
        return float((self.remaining_steps_N < self.horizon_steps).mean())


def forecast_outside(
    predictor: FlowPredictor, curve: OutsideCurve, target: float, horizon_steps: float | None
) -> OutsideForecast:
    """Forecast when a training meets a target.

    What was seen and the horizon share a grid of 300 points, as the curves have that the predictor learned
    from. Under four points of that grid, or of the curve, the answer is the horizon.

    Args:
        predictor: the trained predictor.
        curve: losses seen so far; its last one is the present.
        target: loss to reach, over 0.
        horizon_steps: steps to look ahead, in the curve's own; as many as were seen if not given.

    Raises:
        UserError: the horizon or the target is not over 0, or the horizon leaves the curve no room.
    """
    span = curve.steps[-1] - curve.steps[0]
    horizon = span if horizon_steps is None else horizon_steps
    for name, value in (("horizon", horizon), ("target", target)):
        if not (np.isfinite(value) and value > 0):
            raise UserError(f"--{name}: {value:g} is not over 0; give a positive number")
    num_seen = 1 + round(span / (span + horizon) * (GRID_POINTS - 1))
    if not 2 <= num_seen < GRID_POINTS:
        raise UserError(
            f"--horizon: {horizon:g} steps do not go with a curve of {span:g} steps; give between"
            f" {span / 250:g} and {span * 250:g}"
        )
    width = span / (num_seen - 1)
    ema_L = np.full(GRID_POINTS, np.nan, np.float32)
    ema_L[:num_seen] = smooth(resample(curve, num_seen)[None])[0]
    known_1L = np.where(np.arange(GRID_POINTS) < num_seen, ema_L, ema_L[num_seen - 1])[None]
    seen_1 = np.array([num_seen])
    if len(curve.steps) < predictor.shape.warmup_points and ema_L[:num_seen].min() > target:
        points_N = np.full(predictor.num_samples, GRID_POINTS - num_seen)
    else:
        points_N = predictor.predict(known_1L, seen_1, np.array([[target]], np.float32))[0, 0]
    means_NH = predictor.futures(known_1L, np.array([0]), seen_1, np.array([target], np.float32))[0]
    return OutsideForecast(
        curve.name,
        curve.steps[0],
        width,
        num_seen,
        ema_L,
        means_NH,
        points_N * width,
        (GRID_POINTS - num_seen) * width,
        target,
    )
