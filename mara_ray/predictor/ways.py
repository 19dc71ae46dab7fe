"""The way to a target: the coordinate in which the flow measures the future.

Axis letters: B prefixes, C curves, L points, P prefixes of a curve, H bins, Q what is told of a target.
"""

from __future__ import annotations

import numpy as np

from mara_ray.config import PredictorConfig
from mara_ray.predictor.questions import draw_targets, target_questions
from mara_ray.predictor.targets import bin_edges, interval_means
from mara_ray.seeding import generator

FURTHEST_WAY = 3.0  # ways to the target that the flow tells apart: beyond it, it does not matter how far


def way_unit(question_BQ: np.ndarray, tell_target: bool) -> np.ndarray:
    """The log drop that is one way to the target, (B, 1): the gap, or 1 where no target is told."""
    return -question_BQ[..., :1] if tell_target else np.ones_like(question_BQ[..., :1])


def ways_gone(means_H: np.ndarray, lowest_1: np.ndarray, unit_1: np.ndarray) -> np.ndarray:
    """How far along the way to its target a curve is in each bin, the flow's own coordinate: (..., H).

    log(1 + r) of r = log(lowest / y_j) / unit, at most `FURTHEST_WAY`: 0 at the lowest loss seen, log 2 at
    the target. In this unit a target just under the lowest loss is no nearer than one far below.

    Args:
        means_H: mean losses y_j of the bins, none over the lowest loss seen.
        lowest_1: the lowest loss seen.
        unit_1: the log drop to the target (`way_unit`).
    """
    return np.log1p(np.clip(np.log(lowest_1 / means_H) / unit_1, 0.0, FURTHEST_WAY))


def losses_on_the_way(way_H: np.ndarray, lowest_1: np.ndarray, unit_1: np.ndarray) -> np.ndarray:
    """The inverse of `ways_gone`."""
    return lowest_1 * np.exp(-unit_1 * np.expm1(way_H))


def example_ways(config: PredictorConfig, ema_CL: np.ndarray, seed: int) -> np.ndarray:
    """`ways_gone` after every prefix from the warm-up on, to a target each: float64 (C, P, H)."""
    num_curves, length = ema_CL.shape
    lowest_CL = np.minimum.accumulate(ema_CL, axis=1)
    seen_P = np.arange(min(config.warmup_points, length - 1), length)
    seen_CP = np.broadcast_to(seen_P, (num_curves, len(seen_P)))
    share_CP = generator(seed, "predictor", "standardise").random(seen_CP.shape)
    target_CP, _ = draw_targets(lowest_CL, seen_CP, share_CP, config.target_fractions)
    return cases_of(config, ema_CL, lowest_CL, np.full(num_curves, length), seen_CP, target_CP)[1]


def cases_of(
    config: PredictorConfig,
    ema_CL: np.ndarray,
    lowest_CL: np.ndarray,
    end_C: np.ndarray,
    num_seen_CP: np.ndarray,
    target_CP: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """`target_questions` (C, P, Q) and `ways_gone` (C, P, H) of prefixes with a target each."""
    edge_E = bin_edges(config.horizon_bins, config.last_bin_ratio)
    means_CPH = interval_means(lowest_CL, num_seen_CP, end_C, edge_E)
    latest_CP = np.take_along_axis(lowest_CL, num_seen_CP - 1, axis=1)
    first_CP = np.broadcast_to(ema_CL[:, :1], latest_CP.shape)
    question_XQ = target_questions(first_CP.ravel(), latest_CP.ravel(), target_CP.reshape(-1, 1))[:, 0]
    question_CPQ = question_XQ.reshape(*latest_CP.shape, -1)
    unit_CP1 = way_unit(question_CPQ, config.tell_target)
    return question_CPQ, ways_gone(means_CPH, latest_CP[..., None], unit_CP1)
