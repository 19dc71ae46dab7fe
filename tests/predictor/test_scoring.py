"""The measures of one curve, by hand and against NumPy's and the definitions' slow forms."""

from __future__ import annotations

import numpy as np
import pytest

from mara_ray.predictor.scoring import MEASURES, score_curve, sorted_quantiles

NEVER = 2**30


def measures(
    samples: list[list[float]], num_seen: list[int], needed: int, length: int = 20
) -> dict[str, float]:
    """Of one target, forecasts being a list of samples for each prefix."""
    samples_LGN = np.array(samples)[:, None]
    scores = score_curve(samples_LGN, np.array(num_seen), np.array([needed]), length)
    return dict(zip(MEASURES, scores.measures_K.tolist(), strict=True))


def test_one_case_by_hand() -> None:
    """12 points seen of 20: 8 left; the target is met at point 15, three steps on; windows are 1..7 steps."""
    got = measures([[1, 2, 4, 8]], [12], 15)
    assert got["capped_mae"] == got["median_ae"] == 0  # median (2 + 4) / 2
    assert got["success_accuracy"] == 1
    # P(within 1..7) = 1/4, 1/2, 1/2, 3/4, 3/4, 3/4, 3/4 against 0, 0, 1, 1, 1, 1, 1
    assert got["brier"] == pytest.approx((1 / 16 + 1 / 4 + 1 / 4 + 4 / 16) / 7)
    assert got["coverage_50"] == got["coverage_90"] == 1  # 1.75..5 and 1.15..7.4
    pairs = np.abs(np.subtract.outer([1, 2, 4, 8], [1, 2, 4, 8])).mean()
    assert got["crps"] == pytest.approx((2 + 1 + 1 + 5) / 4 - pairs / 2)


def test_what_is_no_case() -> None:
    """Met already (15 of 15), nothing left (20)."""
    assert all(np.isnan(list(measures([[5.0]] * 2, [15, 20], 15).values())))
    mixed = measures([[2.0], [5.0], [5.0]], [14, 15, 20], 15)
    assert mixed["capped_mae"] == 1


def test_a_target_that_is_never_met_has_the_cap_for_truth() -> None:
    got = measures([[8.0]], [12], NEVER)
    assert got["capped_mae"] == 0 and got["success_accuracy"] == 1 and got["brier"] == 0


def test_median_and_mean_differ() -> None:
    got = measures([[4.0], [3.0], [12.0]], [11, 12, 13], 15)
    assert got["capped_mae"] == pytest.approx((0 + 0 + 10) / 3)
    assert got["median_ae"] == 0


def test_error_by_prefix_and_reliability() -> None:
    samples_LGN = np.array([[10.0, 10.0], [2.0, 6.0]])[:, None]  # at 5 and at 12 points
    scores = score_curve(samples_LGN, np.array([5, 12]), np.array([15]), 20)
    assert scores.mae_by_prefix_E[:2].tolist() == [0, 1] and np.isnan(scores.mae_by_prefix_E[2:]).all()
    assert scores.cases_P.sum() == 14 and scores.happened_P.sum() == 5 + 2
    # At 12 points P = 0 for w = 1, 1/2 for w = 2..5, 1 for 6 and 7; the target is met at w >= 3. At 5 points
    # windows are 1.875 w: P = 1 from w = 6 (11.25) on, and the target is met from there on.
    assert scores.cases_P[[0, 4, 7]].tolist() == [6, 4, 4]
    assert scores.happened_P[[0, 4, 7]].tolist() == [0, 3, 4]


def test_sorted_quantiles_are_numpys() -> None:
    rng = np.random.default_rng(0)
    shares = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    for num_samples in (1, 2, 3, 8):
        samples = np.sort(rng.normal(size=(5, 4, num_samples)), axis=2)
        expected = np.quantile(samples, shares, axis=2)
        assert np.allclose(sorted_quantiles(samples, shares), expected)


def test_brier_and_crps_against_their_definitions() -> None:
    rng = np.random.default_rng(1)
    samples_LGN = np.sort(rng.integers(0, 30, (9, 3, 5)), axis=2)
    num_seen_L, needed_G = np.arange(6, 15), np.array([16, 22, NEVER])
    scores = score_curve(samples_LGN, num_seen_L, needed_G, 30)
    brier, crps = [], []
    for samples_GN, seen in zip(samples_LGN, num_seen_L, strict=True):
        for samples_N, needed in zip(samples_GN, needed_G, strict=True):
            cap = 30 - seen
            for window in np.arange(1, 8) / 8 * cap:
                brier.append(((samples_N <= window).mean() - (needed - seen <= window)) ** 2)
            truth = min(needed - seen, cap)
            pairs = np.abs(samples_N[:, None] - samples_N).mean()
            crps.append(np.abs(samples_N - truth).mean() - pairs / 2)
    got = dict(zip(MEASURES, scores.measures_K.tolist(), strict=True))
    assert got["brier"] == pytest.approx(np.mean(brier)) and got["crps"] == pytest.approx(np.mean(crps))
