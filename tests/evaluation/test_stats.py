from __future__ import annotations

import numpy as np
import pytest

from mara_ray.evaluation.stats import (
    Outcomes,
    draw_resampling,
    holm,
    interval,
    sign_flip_p,
    unit_differences,
)


def outcomes(completed_SRE: list, tasks_RE: list) -> Outcomes:
    return Outcomes(np.array(completed_SRE, float), np.array(tasks_RE, float))


def test_completion_pools_tasks_and_averages_seeds() -> None:
    two_seeds = outcomes([[[1, 3]], [[2, 4]]], [[2, 8]])
    assert two_seeds.completion == pytest.approx(100 * (4 / 10 + 6 / 10) / 2)


def test_replicates_of_a_full_draw_equal_the_estimate() -> None:
    rng = np.random.default_rng(0)
    method = Outcomes(rng.integers(0, 9, (3, 2, 4)).astype(float), np.full((2, 4), 9.0))
    draws = draw_resampling(3, {"id": (2, 4)}, 50, rng)
    once = draws.episode_ZRE["id"]
    once[:] = 1.0
    draws.seed_ZS[:] = 1 / 3
    assert draws.replicates("id", method) == pytest.approx(np.full(50, method.completion))


def test_draws_keep_the_number_of_seeds_and_episodes_and_draw_whole_roots() -> None:
    draws = draw_resampling(5, {"id": (3, 7), "rl": (1, 2)}, 200, np.random.default_rng(1))
    assert draws.seed_ZS.sum(1) == pytest.approx(np.ones(200))
    assert (draws.episode_ZRE["id"].sum((1, 2)) == 21).all()
    assert (draws.episode_ZRE["rl"].sum((1, 2)) == 2).all()
    assert set(np.unique(draws.episode_ZRE["id"].sum(2))) == {0, 7, 14, 21}


def test_a_constant_difference_has_a_point_interval() -> None:
    """Pairing: however noisy the methods, equal draws leave nothing of the common noise."""
    rng = np.random.default_rng(2)
    base_RE = rng.integers(0, 10, (3, 20)).astype(float)
    first, second = (
        Outcomes(base_RE[None] + 2, np.full((3, 20), 20.0)),
        Outcomes(base_RE[None], np.full((3, 20), 20.0)),
    )
    draws = draw_resampling(1, {"id": (3, 20)}, 300, rng)
    low, high = interval(draws.replicates("id", first) - draws.replicates("id", second))
    assert low == pytest.approx(10.0) and high == pytest.approx(10.0)


def coverage(num_seeds: int, num_roots: int, seed_sd: float, root_sd: float, trials: int = 250) -> float:
    """How often the interval of the paired difference holds the true one, on synthetic episodes."""
    rng = np.random.default_rng(3)
    per_root, tasks, true_difference, held = 15, 20.0, 1.0, 0
    tasks_RE = np.full((num_roots, per_root), tasks)
    for _ in range(trials):
        common_RE = rng.normal(10, 2, (num_roots, per_root))
        effect_SRE = (
            true_difference
            + rng.normal(0, seed_sd, (num_seeds, 1, 1))
            + rng.normal(0, root_sd, (1, num_roots, 1))
            + rng.normal(0, 1, (num_seeds, num_roots, per_root))
        )
        first, second = Outcomes(common_RE + effect_SRE, tasks_RE), Outcomes(common_RE[None], tasks_RE)
        draws = draw_resampling(num_seeds, {"id": (num_roots, per_root)}, 300, rng)
        low, high = interval(draws.replicates("id", first) - draws.replicates("id", second))
        held += low <= 100 * true_difference / tasks <= high
    return held / trials


def test_coverage_with_episode_noise_only() -> None:
    """Roots are independent draws of one law: the interval is right or wide, never much too narrow."""
    assert coverage(num_seeds=1, num_roots=3, seed_sd=0.0, root_sd=0.0) > 0.93


def test_coverage_with_seed_and_root_effects() -> None:
    assert 0.87 < coverage(num_seeds=8, num_roots=8, seed_sd=0.5, root_sd=0.5) < 0.99


def test_ignoring_the_seeds_would_not_cover() -> None:
    """The test of coverage can fail: without the seed axis the same interval misses often."""
    assert coverage(num_seeds=1, num_roots=8, seed_sd=0.5, root_sd=0.0) < 0.8


def test_unit_differences_sum_to_the_difference_of_completions() -> None:
    rng = np.random.default_rng(4)
    tasks_RE = rng.integers(5, 20, (2, 6)).astype(float)
    first, second = (
        Outcomes(rng.uniform(0, 5, (3, 2, 6)), tasks_RE),
        Outcomes(rng.uniform(0, 5, (1, 2, 6)), tasks_RE),
    )
    assert unit_differences(first, second).sum() == pytest.approx(first.completion - second.completion)


def test_sign_flip_p_by_hand() -> None:
    # Of the 8 sign patterns only the identity is as high: 1/8, and two-sided twice that.
    assert sign_flip_p(np.array([1.0, 2.0, 3.0]), np.random.default_rng(0)) == pytest.approx(2 / 8)
    assert sign_flip_p(np.array([1.0, -1.0]), np.random.default_rng(0)) == pytest.approx(1.0)
    assert sign_flip_p(np.zeros(5), np.random.default_rng(0)) == 1.0


def test_sign_flip_p_is_uniform_under_the_null_and_small_under_an_effect() -> None:
    rng = np.random.default_rng(5)
    null = np.array([sign_flip_p(rng.normal(0, 1, 30), rng, 199) for _ in range(200)])
    assert 0.01 <= (null <= 0.05).mean() <= 0.10
    assert sign_flip_p(rng.normal(1, 1, 30), rng) < 0.01


def test_holm_by_hand() -> None:
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert corrected == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
