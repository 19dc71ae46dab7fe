"""The measures of one curve's forecasts: errors, success, intervals and probabilities.

Axis letters: L points, G target levels, N samples, Q windows, P probability bins.
A case is a prefix and a target that it has not met. Its truth is the
steps still needed, or the remaining cap L - n if the target is never met. The point forecast is the
median over samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WINDOW_SHARES = tuple(share / 8 for share in range(1, 8))  # of the remaining cap
PREFIX_EDGES = (4, 8, 16, 32, 64, 128, 2001)  # points seen, for the error against the prefix's length
NUM_PROBABILITY_BINS = 8  # of the reliability diagram
MEASURES = (
    "capped_mae",
    "success_accuracy",
    "median_ae",
    "brier",
    "coverage_50",
    "coverage_90",
    "crps",
)


@dataclass(frozen=True)
class CurveScores:
    """What the cases of one curve come to.

    Attributes:
        measures_K: mean of each of `MEASURES` over the cases (the median for `median_ae`); nan without any.
        mae_by_prefix_E: capped error of the cases between two `PREFIX_EDGES`; nan without any.
        forecast_P, happened_P, cases_P: forecast probabilities of success by bins of probability: their
            sum, how often it came, and how many there were.
    """

    measures_K: np.ndarray
    mae_by_prefix_E: np.ndarray
    forecast_P: np.ndarray
    happened_P: np.ndarray
    cases_P: np.ndarray


def score_curve(
    samples_LGN: np.ndarray, num_seen_L: np.ndarray, points_needed_G: np.ndarray, length: int
) -> CurveScores:
    """Score the forecasts of one curve.

    * capped_mae, median_ae: mean and median of |median forecast - truth|, in steps.
    * success_accuracy: share of right answers to "done within w steps?", over windows w of 1/8..7/8 of the
      remaining cap; the forecast says yes if its median is at most w.
    * brier: mean squared error of the share of samples of at most w as the probability of that.
    * coverage_50, coverage_90: how often the truth lies between the 25 and 75, the 5 and 95 % quantiles.
    * crps: the function of that name, in steps.

    Args:
        samples_LGN: forecasts at the points of `num_seen_L`, sorted along N.
        num_seen_L: points seen.
        points_needed_G: points at which each target is first met (`first_crossing`).
        length: points of the whole curve.
    """
    samples_LGN = samples_LGN.astype(np.float64)
    cap_L1 = length - num_seen_L[:, None]
    needed_LG = points_needed_G - num_seen_L[:, None]
    case_LG = (needed_LG > 0) & (cap_L1 > 0)
    truth_LG = np.minimum(needed_LG, cap_L1).astype(np.float64)
    low90_LG, low50_LG, median_LG, high50_LG, high90_LG = sorted_quantiles(
        samples_LGN, (0.05, 0.25, 0.5, 0.75, 0.95)
    )
    error_LG = np.abs(median_LG - truth_LG)

    window_LQ = cap_L1 * np.array(WINDOW_SHARES)
    happens_LGQ = needed_LG[..., None] <= window_LQ[:, None]
    right_LGQ = (median_LG[..., None] <= window_LQ[:, None]) == happens_LGQ
    probability_LGQ = np.stack(
        [(samples_LGN <= window_LQ[:, None, None, q]).mean(2) for q in range(len(WINDOW_SHARES))], axis=2
    )
    values_LG = (
        error_LG,
        right_LGQ.mean(2),
        error_LG,
        ((probability_LGQ - happens_LGQ) ** 2).mean(2),
        (low50_LG <= truth_LG) & (truth_LG <= high50_LG),
        (low90_LG <= truth_LG) & (truth_LG <= high90_LG),
        crps(samples_LGN, truth_LG),
    )
    summaries = [np.median if name == "median_ae" else np.mean for name in MEASURES]
    found = bool(case_LG.any())
    measures_K = [
        summary(v[case_LG]) if found else np.nan for summary, v in zip(summaries, values_LG, strict=True)
    ]

    prefix_L = np.digitize(num_seen_L, PREFIX_EDGES) - 1
    by_prefix_E = []
    for prefix in range(len(PREFIX_EDGES) - 1):
        chosen_LG = case_LG & (prefix_L == prefix)[:, None]
        by_prefix_E.append(error_LG[chosen_LG].mean() if chosen_LG.any() else np.nan)

    probability_X, happens_X = probability_LGQ[case_LG].ravel(), happens_LGQ[case_LG].ravel()
    bin_X = np.minimum((probability_X * NUM_PROBABILITY_BINS).astype(int), NUM_PROBABILITY_BINS - 1)
    tallies = (
        np.bincount(bin_X, weights=weights, minlength=NUM_PROBABILITY_BINS)
        for weights in (probability_X, happens_X.astype(float), None)
    )
    return CurveScores(np.array(measures_K), np.array(by_prefix_E), *tallies)


def crps(samples: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score of samples that are sorted along the last axis.

    mean |sample - truth| - 1/2 mean |sample - sample'| (Gneiting and Raftery 2007).
    """
    num_samples = samples.shape[-1]
    weight_N = 2 * np.arange(num_samples) - num_samples + 1  # sum over pairs of |x - x'|, of sorted samples
    distance = 2 * (samples * weight_N).sum(-1) / num_samples**2
    return np.abs(samples - truth[..., None]).mean(-1) - distance / 2


def sorted_quantiles(samples: np.ndarray, shares: tuple[float, ...]) -> list[np.ndarray]:
    """Quantiles along the last axis of samples that are sorted, as `numpy.quantile` has them."""
    last = samples.shape[-1] - 1
    quantiles = []
    for share in shares:
        place = share * last
        left = min(int(place), max(last - 1, 0))
        right = min(left + 1, last)
        quantiles.append(samples[..., left] + (place - left) * (samples[..., right] - samples[..., left]))
    return quantiles
