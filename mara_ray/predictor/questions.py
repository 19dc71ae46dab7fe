"""What a forecast is asked: a target. How training draws targets, and what networks are told of them.

A target is itself evidence. It was set by someone who expects it to be met: workloads draw it as a share
of the log-drop that the curve will make, so a target far below the losses seen so far says that this curve is
going far. A network that is trained on (prefix, target) pairs drawn the same way learns how much that is
worth. Axis letters: B prefixes, C curves, L points, P prefixes of a curve, G target levels, Q what is told
of a target.
"""

from __future__ import annotations

import numpy as np

NUM_QUESTIONS = 3
SMALLEST_GAP = 1e-4  # in log loss, to a target that is not met
SMALLEST_DROP = 1e-3  # in log loss, as in `CurveBank.target_losses`


def target_questions(first_B: np.ndarray, lowest_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
    """What networks are told of targets: float64 (B, G, Q), scale-free.

    Log target against the lowest loss seen and against the first loss, and the log of the gap to the lowest.
    """
    log_BG = np.log(target_BG, dtype=np.float64)
    gap_BG = np.maximum(np.log(lowest_B, dtype=np.float64)[:, None] - log_BG, SMALLEST_GAP)
    return np.stack([-gap_BG, log_BG - np.log(first_B, dtype=np.float64)[:, None], np.log(gap_BG)], axis=2)


def draw_targets(
    lowest_CL: np.ndarray, num_seen_CP: np.ndarray, share_CP: np.ndarray, fractions: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Targets of prefixes that are not met yet, between two fractions of the curve's log-drop.

    Args:
        lowest_CL: lowest losses so far, up to the curve's end.
        num_seen_CP: points seen.
        share_CP: uniform draws in 0..1 (more axes may follow): where between the least unmet fraction and the
            greatest.
        fractions: the least and the greatest fraction.

    Returns:
        Target losses, as `share_CP`, and the weights of the cases (C, P): the share of all fractions that
        are not met yet, so that a weighted mean is one over targets drawn from all of them.
    """
    least, greatest = fractions
    first_C1, end_C1 = lowest_CL[:, :1].astype(np.float64), lowest_CL[:, -1:]
    drop_C1 = np.maximum(np.log(first_C1 / end_C1), SMALLEST_DROP)
    latest_CP = np.take_along_axis(lowest_CL, num_seen_CP - 1, axis=1)
    unmet_CP = np.clip(np.log(first_C1 / latest_CP) / drop_C1, least, greatest)
    weight_CP = (greatest - unmet_CP) / (greatest - least)
    more = (slice(None), slice(None), *(None,) * (share_CP.ndim - 2))
    fraction_CP = unmet_CP[more] + share_CP * (greatest - unmet_CP)[more]
    return first_C1[more] * np.exp(-drop_C1[more] * fraction_CP), weight_CP
