"""What the flow predicts, mean losses of future intervals, and how that is read as steps still needed.

Axis letters: B prefixes, C curves, L points, P prefixes of a curve, G target levels, N samples, H bins.
A prefix of n points has the horizon h = L - n, cut into H bins.
"""

from __future__ import annotations

import numpy as np


def bin_edges(num_bins: int, last_bin_ratio: float) -> np.ndarray:
    """Where bins begin and end, as shares of the horizon: float64 (H + 1,).

    Widths grow by a constant factor up to the last one, `last_bin_ratio` times the first; 1 is all alike.
    """
    width_H = last_bin_ratio ** np.linspace(0, 1, num_bins)
    return np.concatenate([[0.0], np.cumsum(width_H) / width_H.sum()])


def bin_middles(edge_E: np.ndarray) -> np.ndarray:
    """Where the bins' means stand, as shares of the horizon, float64 (H,); in steps, half a step later."""
    return (edge_E[:-1] + edge_E[1:]) / 2


def interval_means(
    ema_CL: np.ndarray, num_seen_CP: np.ndarray, length_C: np.ndarray, edge_E: np.ndarray
) -> np.ndarray:
    """Mean loss of each future bin after chosen prefixes: float64 (C, P, H).

    With C(k) the sum of the next k losses, linear in between, and e the edges,
    y_j = [C(e_j h) - C(e_{j-1} h)] / (e_j h - e_{j-1} h).

    Args:
        ema_CL: losses.
        num_seen_CP: points n seen.
        length_C: points at which each curve ends, so that the horizon is h = length - n.
        edge_E: `bin_edges`.
    """
    total_CL = np.concatenate([np.zeros((len(ema_CL), 1)), np.cumsum(ema_CL, 1, dtype=np.float64)], 1)
    horizon_CP1 = (length_C[:, None] - num_seen_CP)[..., None]
    edge_CPE = num_seen_CP[..., None] + horizon_CP1 * edge_E
    left_CPE = np.minimum(edge_CPE.astype(np.int64), ema_CL.shape[1] - 1)
    share_CPE = edge_CPE - left_CPE
    row_C11 = np.arange(len(ema_CL))[:, None, None]
    sum_CPE = total_CL[row_C11, left_CPE] * (1 - share_CPE) + total_CL[row_C11, left_CPE + 1] * share_CPE
    return np.diff(sum_CPE, axis=2) / (horizon_CP1 * np.diff(edge_E))


def widened(steps_BGN: np.ndarray, spread: float, horizon_B: np.ndarray) -> np.ndarray:
    """Sorted steps, from 1 to the horizon, with their ratios to the median raised to the power `spread`.

    Few Euler steps shrink the differences between samples; this gives them back and leaves the median alone.

    Returns:
        uint16 (B, G, N), sorted along N.
    """
    median_BG1 = np.median(steps_BGN, axis=2, keepdims=True)
    wide_BGN = np.rint(median_BG1 * (steps_BGN / median_BG1) ** spread)
    return np.clip(wide_BGN, 1, horizon_B[:, None, None]).astype(np.uint16)


def first_crossing_steps(
    means_BNH: np.ndarray,
    latest_B: np.ndarray,
    horizon_B: np.ndarray,
    target_BG: np.ndarray,
    edge_E: np.ndarray,
) -> np.ndarray:
    """Steps until forecast futures meet the targets: the decoder.

    The loss runs from its latest value through the bin means, each standing at the middle step of its
    bin; the answer is where the way to the first bin at or under the target crosses it, rounded up,
    at least one step. No such bin: the whole horizon.

    Args:
        means_BNH: forecast mean losses of the bins, float64.
        latest_B: the last loss seen.
        horizon_B: steps h covered by the H bins, at least 1.
        target_BG: losses.
        edge_E: `bin_edges`.

    Returns:
        uint16 (B, G, N), sorted along N.
    """
    num_bins = means_BNH.shape[2]
    lowest_BNH = np.minimum.accumulate(means_BNH, axis=2)
    target_BGN = np.repeat(target_BG.astype(np.float64)[:, :, None], means_BNH.shape[1], 2)
    # The lowest loss so far never rises, so the bins over the target are exactly those before the crossing.
    bin_BGN = (lowest_BNH[:, None] > target_BGN[..., None]).sum(3)
    never_BGN = bin_BGN == num_bins
    bin_BGN = np.minimum(bin_BGN, num_bins - 1)

    path_BNH = np.concatenate(
        [np.broadcast_to(latest_B[:, None, None], (*means_BNH.shape[:2], 1)), means_BNH], axis=2
    )
    row_B11 = np.arange(len(means_BNH))[:, None, None]
    sample_N = np.arange(means_BNH.shape[1])
    before_BGN = path_BNH[row_B11, sample_N, bin_BGN]
    after_BGN = path_BNH[row_B11, sample_N, bin_BGN + 1]
    drop_BGN = np.maximum(before_BGN - after_BGN, 1e-300)
    share_BGN = np.clip((before_BGN - target_BGN) / drop_BGN, 0.0, 1.0)

    horizon_B11 = horizon_B[:, None, None].astype(np.float64)
    middle_H = bin_middles(edge_E)
    right_BGN = middle_H[bin_BGN] * horizon_B11 + 0.5
    left_BGN = np.where(bin_BGN == 0, 0.0, middle_H[bin_BGN - 1] * horizon_B11 + 0.5)
    crossing_BGN = left_BGN + share_BGN * (right_BGN - left_BGN)
    steps_BGN = np.where(never_BGN, horizon_B11, np.clip(np.ceil(crossing_BGN), 1, horizon_B11))
    return np.sort(steps_BGN.astype(np.uint16), axis=2)
