"""How good forecasts are: capped error, success classification, coverage and CRPS, on test curves.

Axis letters: C curves, L points, G target levels, N samples, Q windows, R resamples.
A case is a test curve, a prefix of at least the warm-up points, and a target that the prefix has not
met. Its truth is the steps still needed, or the remaining cap L - n if the target is never met. The
point forecast is the median over samples. Every number is a mean over the cases of a curve, then
over curves, so that no curve counts for more because it is slow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.seeding import generator

SETS = ("id", "rl", "vit")
BASELINE = "wls"
WINDOW_SHARES = tuple(share / 8 for share in range(1, 8))  # of the remaining cap
RESAMPLES = 2000
MEASURES = ("capped_mae", "success_accuracy", "coverage_90", "crps")


def evaluate_predictors(
    tables: dict[str, ForecastTable], bank: CurveBank, points_needed_CG: np.ndarray, warmup: int
) -> dict[str, Any]:
    """Compare predictors on the test curves of every set of the bank, and of their `mean`.

    * capped_mae: |median - truth| in steps.
    * success_accuracy: share of right answers to "done within w steps?", over windows w of 1/8..7/8 of
      the remaining cap; the forecast says yes if its median is at most w.
    * coverage_90: how often the truth lies between the 5 % and 95 % quantiles of the samples.
    * crps: mean |sample - truth| - 1/2 mean |sample - sample'|, in steps.

    Args:
        tables: by predictor name; all of this bank, and one of them `wls`.
        bank: the curves.
        points_needed_CG: `first_crossing` of the targets the tables were built for.
        warmup: prefixes under so many points are left out.

    Returns:
        {"predictors": {name: {set: {measure: value}}}, "versus_wls": {name: {set:
        {"mae_reduction_percent", "ci", "success_gain_points", "success_ci"}}}}; intervals are 95 %, by a
        paired bootstrap over curves within each set.
    """
    rows = {name: bank.rows(name, "test") for name in SETS}
    rows = {name: found for name, found in rows.items() if len(found)}
    per_curve = {
        name: {
            set_name: np.array([_curve_measures(table, int(row), points_needed_CG, warmup) for row in found])
            for set_name, found in rows.items()
        }
        for name, table in tables.items()
    }
    predictors = {}
    for name, sets in per_curve.items():
        means = {set_name: np.nanmean(values_CK, axis=0) for set_name, values_CK in sets.items()}
        means["mean"] = np.mean(list(means.values()), axis=0)
        predictors[name] = {
            s: dict(zip(MEASURES, map(float, mean), strict=True)) for s, mean in means.items()
        }
    versus = {
        name: _versus(sets, per_curve[BASELINE]) for name, sets in per_curve.items() if name != BASELINE
    }
    return {"predictors": predictors, "versus_wls": versus}


def _curve_measures(table: ForecastTable, row: int, points_needed_CG: np.ndarray, warmup: int) -> list[float]:
    """The four measures of one curve, each the mean over its cases (nan without any)."""
    samples_LGN = table.steps_CLGN[row].astype(np.float64)
    length = len(samples_LGN)
    seen_L1 = np.arange(1, length + 1)[:, None]
    cap_L1 = length - seen_L1
    needed_LG = points_needed_CG[row] - seen_L1
    case_LG = (needed_LG > 0) & (seen_L1 >= warmup) & (cap_L1 > 0)
    truth_LG = np.minimum(needed_LG, cap_L1).astype(np.float64)
    median_LG = np.median(samples_LGN, axis=2)
    if not case_LG.any():
        return [np.nan] * len(MEASURES)

    window_LQ = cap_L1 * np.array(WINDOW_SHARES)
    right_LGQ = (median_LG[..., None] <= window_LQ[:, None]) == (needed_LG[..., None] <= window_LQ[:, None])
    low_LG, high_LG = np.quantile(samples_LGN, [0.05, 0.95], axis=2)
    covered_LG = (low_LG <= truth_LG) & (truth_LG <= high_LG)
    spread_LG = np.abs(samples_LGN[..., None] - samples_LGN[..., None, :]).mean((2, 3))
    crps_LG = np.abs(samples_LGN - truth_LG[..., None]).mean(2) - spread_LG / 2
    values_LG = (np.abs(median_LG - truth_LG), right_LGQ.mean(2), covered_LG, crps_LG)
    return [float(value_LG[case_LG].mean()) for value_LG in values_LG]


def _versus(sets: dict[str, np.ndarray], baseline: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Improvements over the baseline with intervals; both hold (C, 4) measures of the same curves."""
    pairs_XR = {}
    for set_name, values_CK in sets.items():
        both_CK = np.concatenate([values_CK[:, :2], baseline[set_name][:, :2]], axis=1)
        both_CK = both_CK[~np.isnan(both_CK).any(1)]
        rng = generator(0, "predictor", "bootstrap", set_name)
        draw_RC = rng.integers(0, len(both_CK), (RESAMPLES, len(both_CK)))
        draw_RC = np.concatenate([np.arange(len(both_CK))[None], draw_RC])  # row 0: the curves themselves
        pairs_XR[set_name] = both_CK[draw_RC].mean(1).T
    pairs_XR["mean"] = np.mean(list(pairs_XR.values()), axis=0)
    return {set_name: _improvement(*values_XR) for set_name, values_XR in pairs_XR.items()}


def _improvement(
    error_R: np.ndarray, success_R: np.ndarray, baseline_error_R: np.ndarray, baseline_success_R: np.ndarray
) -> dict[str, Any]:
    reduction_R = 100 * (1 - error_R / np.maximum(baseline_error_R, 1e-9))
    gain_R = 100 * (success_R - baseline_success_R)
    return {
        "mae_reduction_percent": float(reduction_R[0]),
        "ci": [float(bound) for bound in np.quantile(reduction_R[1:], [0.025, 0.975])],
        "success_gain_points": float(gain_R[0]),
        "success_ci": [float(bound) for bound in np.quantile(gain_R[1:], [0.025, 0.975])],
    }
