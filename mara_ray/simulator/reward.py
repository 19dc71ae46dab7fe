"""Reward: completed tasks, and a potential that pays for log progress on the way.

Axis letters: B episodes, K slots.
"""

from __future__ import annotations

import numpy as np


def log_progress(
    log_initial: np.ndarray, log_loss: np.ndarray, log_target: np.ndarray, inverse_range: np.ndarray
) -> np.ndarray:
    """Progress q = clip(log(L0 / max(L, target)) / log(L0 / target), 0, 1), elementwise, from logarithms.

    Args:
        log_initial: log of the untrained loss L0.
        log_loss: log of the present loss L.
        log_target: log of the target.
        inverse_range: from `inverse_log_range`.
    """
    progress = (log_initial - np.maximum(log_loss, log_target)) * inverse_range
    return np.minimum(np.maximum(progress, 0.0), 1.0)


def inverse_log_range(log_initial: np.ndarray, log_target: np.ndarray) -> np.ndarray:
    """1 / log(L0 / target), and 0 where the target is met untrained: no way to go, no progress to pay.

    With that every task enters at q = 0, so the potential is 0 at the start of every episode.
    """
    span = log_initial - log_target
    return np.divide(1.0, span, out=np.zeros_like(span), where=span > 0)


def shaped_reward(
    num_completed_B: np.ndarray, potential_B: np.ndarray, next_potential_B: np.ndarray, weight: float
) -> np.ndarray:
    """Completions + beta (next potential - potential), with gamma = 1 (Ng, Harada and Russell, 1999).

    The potential is the sum of q over the tasks in slots. It is 0 at the start and, because every
    deadline is cut at T, at the end: the rewards of an episode sum to its completions under any policy.

    Returns:
        float64 (B,).
    """
    return num_completed_B + weight * (next_potential_B - potential_B)
