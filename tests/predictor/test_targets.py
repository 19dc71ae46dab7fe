"""Bins and the decoder on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.curves.bank import NEVER, CurveBank, first_crossing
from mara_ray.predictor.targets import bin_edges, first_crossing_steps, interval_means, widened


def decode(means: list[float], latest: float, horizon: int, *targets: float) -> list[int]:
    steps_BGN = first_crossing_steps(
        np.array([[means]]),
        np.array([latest]),
        np.array([horizon]),
        np.array([targets]),
        bin_edges(len(means), 1.0),
    )
    assert steps_BGN.dtype == np.uint16
    return steps_BGN[0, :, 0].tolist()


def means_after_all(ema_CL: np.ndarray, edge_E: np.ndarray) -> np.ndarray:
    """The bins of every prefix, (C, L - 1, H); entry n - 1 is for n points."""
    num_curves, length = ema_CL.shape
    seen_CP = np.broadcast_to(np.arange(1, length), (num_curves, length - 1))
    return interval_means(ema_CL, seen_CP, np.full(num_curves, length), edge_E)


def test_interval_means_by_hand() -> None:
    """After 1 of 7 points, 6 steps in 4 bins of 1.5 steps: half of a point goes to either side."""
    losses = np.array([[9.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]])
    means_CLH = means_after_all(losses, bin_edges(4, 1.0))
    assert means_CLH.shape == (1, 6, 4)
    expected = [(6 + 2.5) / 1.5, (2.5 + 4) / 1.5, (3 + 1) / 1.5, (1 + 1) / 1.5]
    assert means_CLH[0, 0].tolist() == pytest.approx(expected)
    assert means_CLH[0, 2].tolist() == pytest.approx([4, 3, 2, 1])  # one step a bin
    assert means_CLH[0, 5].tolist() == pytest.approx([1, 1, 1, 1])  # four bins in one step


def test_one_step_a_bin_is_exact() -> None:
    means = [0.9, 0.7, 0.7, 0.5]
    assert decode(means, 1.0, 4, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4) == [1, 1, 2, 2, 4, 4, 4]


def test_crossing_inside_a_bin() -> None:
    """Bins of 10 steps stand at steps 5.5, 15.5, 25.5, 35.5; from 0.8 to 0.6 is 10 steps, half is 5."""
    means = [0.8, 0.6, 0.5, 0.5]
    assert decode(means, 1.0, 40, 0.7) == [11]  # 5.5 + 5 = 10.5
    assert decode(means, 1.0, 40, 0.55) == [21]  # 15.5 + 5 = 20.5
    assert decode(means, 1.0, 40, 0.9) == [3]  # from 1.0 now to 0.8 at 5.5: 2.75


def test_first_bin_counts_and_never_is_the_horizon() -> None:
    means = [0.5, 0.9, 0.2, 0.9]
    assert decode(means, 1.0, 40, 0.6) == [5]  # later bins do not matter; 0.8 * 5.5 = 4.4
    assert decode(means, 1.0, 40, 0.1) == [40]
    assert decode(means, 0.55, 40, 0.6) == [1]  # not met, says the caller: at least one step


def test_samples_are_decoded_apart_and_sorted() -> None:
    means_BNH = np.array([[[0.9, 0.8], [0.4, 0.3], [0.9, 0.4]]])
    steps = first_crossing_steps(
        means_BNH, np.ones(1), np.array([2]), np.array([[0.5, 0.85]]), bin_edges(2, 1.0)
    )
    assert steps.tolist() == [[[1, 2, 2], [1, 2, 2]]]


def test_widening_keeps_the_median_and_the_bounds() -> None:
    steps_BGN = np.array([[[10, 20, 20, 40], [1, 1, 2, 50]]], np.uint16)
    assert widened(steps_BGN, 1.0, np.array([50])).tolist() == steps_BGN.tolist()
    assert widened(steps_BGN, 2.0, np.array([50])).tolist() == [[[5, 20, 20, 50], [1, 1, 3, 50]]]
    assert widened(steps_BGN, 2.0, np.array([100]))[0, 0].tolist() == [5, 20, 20, 80]


@pytest.mark.parametrize("last_bin_ratio", [1.0, 6.0])
def test_decoding_the_true_future_is_nearly_exact(toy_bank: CurveBank, last_bin_ratio: float) -> None:
    """The bins lose what happens inside them: about a step of 60, and no bias to speak of."""
    target_CG = toy_bank.target_losses((0.5, 0.7, 0.9, 1.05))
    needed_CG = first_crossing(toy_bank.ema_CL, target_CG)
    num_seen, edge_E = 5, bin_edges(32, last_bin_ratio)
    means_CH = means_after_all(toy_bank.ema_CL, edge_E)[:, num_seen - 1]
    horizon = np.full(len(toy_bank), toy_bank.length_points - num_seen)
    latest = toy_bank.ema_CL[:, num_seen - 1].astype(np.float64)
    steps_CG = first_crossing_steps(means_CH[:, None], latest, horizon, target_CG, edge_E)[..., 0].astype(int)
    open_CG = (needed_CG > num_seen) & (needed_CG < NEVER)
    error = (steps_CG - (needed_CG - num_seen))[open_CG]
    assert np.abs(error).mean() < 1.0
    assert abs(error.mean()) < 0.5
    assert (steps_CG[:, 3] == horizon).all()


def test_bins_that_grow() -> None:
    assert bin_edges(4, 1.0).tolist() == [0, 0.25, 0.5, 0.75, 1]
    edge_E = bin_edges(3, 4.0)
    assert edge_E.tolist() == pytest.approx([0, 1 / 7, 3 / 7, 1])
    losses = np.array([[9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]])
    assert means_after_all(losses, edge_E)[0, 0].tolist() == pytest.approx([7, 5.5, 2.5])
    steps = first_crossing_steps(
        np.array([[[7.0, 5.5, 2.5]]]), np.array([9.0]), np.array([7]), np.array([[4.0, 6.25]]), edge_E
    )
    # the bins stand at steps 1, 2.5 and 5.5: half-way between the last two, and between the first two
    assert steps[0, :, 0].tolist() == [4, 2]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_a_monotone_projection_would_change_nothing(seed: int) -> None:
    """The first crossing of a path is that of its running minimum, in whole bins; within one, of the path."""
    rng = np.random.default_rng(seed)
    means_BNH = np.exp(rng.normal(0, 0.3, (3, 4, 8)).cumsum(2) - 0.2)
    asked = np.ones(3), np.full(3, 80), rng.uniform(0.2, 1, (3, 2)), bin_edges(8, 1.0)
    plain = first_crossing_steps(means_BNH, *asked).astype(int)
    projected = first_crossing_steps(np.minimum.accumulate(means_BNH, axis=2), *asked).astype(int)
    assert np.abs(plain - projected).max() < 10, "never by a bin of ten steps"
