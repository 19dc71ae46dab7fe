"""How good forecasts are, on test curves: by set, by configuration, and against the prefix's length.

Axis letters: C curves, G target levels, K measures, R resamples, E ranges of prefix lengths, P prefixes, or
probability bins. Every number is a mean over the cases of a curve, then over curves, so that no curve
counts for more because it is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.forecast import CurvePredictor, ForecastTable
from mara_ray.predictor.prefixes import PrefixPredictor
from mara_ray.predictor.scoring import MEASURES, PREFIX_EDGES, CurveScores, score_curve
from mara_ray.seeding import generator

SETS = ("id", "rl", "vit")
BASELINE = "wls"
SLOW_SHARE = 0.25  # of a set's curves that fall least, told apart
RESAMPLES = 2000

# Row of the bank and points seen (P,) -> uint16 (P, G, N)
CurveForecasts = Callable[[int, np.ndarray], np.ndarray]


def from_table(table: ForecastTable) -> CurveForecasts:
    """The forecasts of a table."""
    return lambda row, num_seen_P: table.steps_CLGN[row, num_seen_P - 1]


def from_predictor(predictor: CurvePredictor, bank: CurveBank, target_CG: np.ndarray) -> CurveForecasts:
    """Forecasts made on the spot, of no more prefixes than are asked for if the predictor can."""

    def forecasts(row: int, num_seen_P: np.ndarray) -> np.ndarray:
        ema_1L, target_1G = bank.ema_CL[row : row + 1], target_CG[row : row + 1]
        if isinstance(predictor, PrefixPredictor):
            curve_P = np.zeros(len(num_seen_P), np.int64)
            return predictor.predict_prefixes(ema_1L, curve_P, num_seen_P, target_1G[curve_P])
        return predictor.predict_curves(ema_1L, target_1G)[0, num_seen_P - 1]

    return forecasts


def evaluate_predictors(
    forecasts: Mapping[str, CurveForecasts],
    bank: CurveBank,
    points_needed_CG: np.ndarray,
    num_seen_P: np.ndarray,
) -> dict[str, Any]:
    """Compare predictors on the test curves of every set of the bank, and of their `mean`.

    Args:
        forecasts: of the predictors by name, `wls` among them.
        bank: the curves.
        points_needed_CG: `first_crossing` of the targets.
        num_seen_P: points seen of the prefixes that are looked at, from the end of the warm-up on; those
            before it are judged apart.

    Returns:
        {"predictors": {name: {set: {measure: value}}}, "versus_wls": {name: {set:
        {"mae_reduction_percent", "ci", "success_gain_points", "success_ci"}}}}, with 95 % intervals by a
        paired bootstrap over curves within each set; and by name "configurations": {configuration:
        {measure: value}}, "slow": {set: {measure: value}} of the quarter of curves that fall least, "prefix":
        {set: {"from": [points], "capped_mae": [...]}}, "reliability": {set: {"forecast", "happened",
        "cases"}} in bins of the forecast probability, and "early": {set: {measure: value}} of the prefixes
        before the warm-up is over. `mara_ray.predictor.scoring` has the measures.
    """
    rows = {name: bank.rows(name, "test") for name in SETS}
    rows = {name: found for name, found in rows.items() if len(found)}

    early_P = np.arange(1, num_seen_P[0])
    asked_P, length = np.concatenate([early_P, num_seen_P]), bank.length_points

    def scores_of(of: CurveForecasts) -> tuple[dict[str, CurveScores], dict[str, CurveScores]]:
        """By set: the scores before the warm-up is over, and from then on."""
        early, late = {}, {}
        for set_name, found in rows.items():
            pairs = []
            for row in found:
                samples_PGN, needed_G = of(int(row), asked_P), points_needed_CG[row]
                parts = ((samples_PGN[: len(early_P)], early_P), (samples_PGN[len(early_P) :], num_seen_P))
                pairs.append([score_curve(samples, seen_P, needed_G, length) for samples, seen_P in parts])
            early[set_name], late[set_name] = (_stacked(list(scores)) for scores in zip(*pairs, strict=True))
        return early, late

    scores = {name: scores_of(of) for name, of in forecasts.items()}
    all_scores = {name: late for name, (_, late) in scores.items()}
    early_scores = {name: early for name, (early, _) in scores.items()} if len(early_P) else {}
    drop_C = np.log(bank.ema_CL[:, 0] / bank.ema_CL.min(1))
    baseline = {set_name: scores.measures_K for set_name, scores in all_scores[BASELINE].items()}
    result: dict[str, Any] = {
        key: {} for key in ("versus_wls", "configurations", "slow", "prefix", "reliability")
    }
    result["predictors"] = {name: _means(sets) for name, sets in all_scores.items()}
    result["early"] = {name: _means(sets) for name, sets in early_scores.items()}
    for name, sets in all_scores.items():
        if name != BASELINE:
            result["versus_wls"][name] = _versus(
                {s: scores.measures_K for s, scores in sets.items()}, baseline
            )
        result["configurations"][name] = {
            configuration: _named(np.nanmean(scores.measures_K[members], axis=0))
            for set_name, scores in sets.items()
            for configuration, members in _groups(bank.configuration[rows[set_name]])
        }
        result["slow"][name] = {
            set_name: _named(np.nanmean(scores.measures_K[_least(drop_C[rows[set_name]])], axis=0))
            for set_name, scores in sets.items()
        }
        result["prefix"][name] = {set_name: _by_prefix(scores) for set_name, scores in sets.items()}
        result["reliability"][name] = {set_name: _reliability(scores) for set_name, scores in sets.items()}
    return result


def _means(sets: Mapping[str, CurveScores]) -> dict[str, dict[str, float]]:
    means = {set_name: np.nanmean(scores.measures_K, axis=0) for set_name, scores in sets.items()}
    means["mean"] = np.mean(list(means.values()), axis=0)
    return {set_name: _named(mean) for set_name, mean in means.items()}


def _stacked(scores: list[CurveScores]) -> CurveScores:
    """Scores of curves, on a first axis C."""
    return CurveScores(*(np.array([getattr(s, field.name) for s in scores]) for field in fields(CurveScores)))


def _named(values_K: np.ndarray) -> dict[str, float]:
    return dict(zip(MEASURES, map(float, values_K), strict=True))


def _groups(names_C: np.ndarray) -> list[tuple[str, np.ndarray]]:
    return [(str(name), np.flatnonzero(names_C == name)) for name in dict.fromkeys(names_C.tolist())]


def _least(drop_C: np.ndarray) -> np.ndarray:
    return np.argsort(drop_C, kind="stable")[: max(1, round(SLOW_SHARE * len(drop_C)))]


def _by_prefix(scores: CurveScores) -> dict[str, list[float]]:
    errors_E = [column[~np.isnan(column)] for column in scores.mae_by_prefix_E.T]
    found = [(edge, errors) for edge, errors in zip(PREFIX_EDGES, errors_E, strict=False) if len(errors)]
    return {
        "from": [float(edge) for edge, _ in found],
        "capped_mae": [float(errors.mean()) for _, errors in found],
    }


def _reliability(scores: CurveScores) -> dict[str, list[float]]:
    cases_P = scores.cases_P.sum(0)
    filled_P = cases_P > 0
    return {
        "forecast": (scores.forecast_P.sum(0)[filled_P] / cases_P[filled_P]).tolist(),
        "happened": (scores.happened_P.sum(0)[filled_P] / cases_P[filled_P]).tolist(),
        "cases": cases_P[filled_P].tolist(),
    }


def _versus(sets: dict[str, np.ndarray], baseline: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Improvements over the baseline with intervals; both hold (C, K) measures of the same curves."""
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
