"""Uncertainty of completion rates: two-way paired bootstrap, sign-flip permutation test, Holm.

Axis letters: S training seeds, R workload roots, E episodes of a root, Z resamples.
All methods meet the same episodes, so one set of draws serves them all: replicates of two methods
are paired, and the interval of their difference is that of the replicates' difference.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.stats import permutation_test

CONFIDENCE = 0.95
SIGN_PATTERNS = 9_999


@dataclass(frozen=True)
class Outcomes:
    """What one method did on one set of episodes.

    Attributes:
        completed_SRE: tasks finished on time, float64; S is 1 for a method without training.
        tasks_RE: tasks generated, float64, the same for every method and seed.
    """

    completed_SRE: np.ndarray
    tasks_RE: np.ndarray

    @property
    def completion(self) -> float:
        """100 x tasks completed / tasks, pooled over episodes and averaged over training seeds."""
        return float(100.0 * self.completed_SRE.mean(0).sum() / self.tasks_RE.sum())


@dataclass(frozen=True)
class Resampling:
    """The draws of a two-way bootstrap, as weights.

    Attributes:
        seed_ZS: weight of each training seed in each resample; rows sum to 1.
        episode_ZRE: for each set, how often each episode was drawn.
    """

    seed_ZS: np.ndarray
    episode_ZRE: Mapping[str, np.ndarray]

    def replicates(self, set_name: str, outcomes: Outcomes) -> np.ndarray:
        """Completion in percent of every resample, float64 (Z,)."""
        episode_ZE = self.episode_ZRE[set_name].reshape(len(self.seed_ZS), -1)
        num_seeds = len(outcomes.completed_SRE)
        completed_ZS = episode_ZE @ outcomes.completed_SRE.reshape(num_seeds, -1).T
        seed_ZS = self.seed_ZS if num_seeds > 1 else np.ones((len(self.seed_ZS), 1))
        return 100.0 * (completed_ZS * seed_ZS).sum(1) / (episode_ZE @ outcomes.tasks_RE.ravel())


def draw_resampling(
    num_seeds: int, episodes: Mapping[str, tuple[int, int]], resamples: int, rng: np.random.Generator
) -> Resampling:
    """Draw training seeds and, crossed with them, workload roots and episodes within roots.

    Seeds are drawn once per resample for all sets (a policy is the same on each); episodes of
    different sets are independent. With one seed the interval says nothing of training luck.

    Args:
        num_seeds: S.
        episodes: for each set its (R, E).
        resamples: Z.
        rng: where the draws come from.
    """
    seed_ZS = rng.multinomial(num_seeds, np.full(num_seeds, 1.0 / num_seeds), size=resamples) / num_seeds
    episode_ZRE = {}
    for name, (num_roots, per_root) in sorted(episodes.items()):
        root_ZR = rng.integers(num_roots, size=(resamples, num_roots))
        within_ZRE = rng.integers(per_root, size=(resamples, num_roots, per_root))
        drawn_ZRE = root_ZR[:, :, None] * per_root + within_ZRE
        total = num_roots * per_root
        flat = (np.arange(resamples)[:, None] * total + drawn_ZRE.reshape(resamples, -1)).ravel()
        counts = np.bincount(flat, minlength=resamples * total).astype(np.float64)
        episode_ZRE[name] = counts.reshape(resamples, num_roots, per_root)
    return Resampling(seed_ZS, episode_ZRE)


def interval(replicates_Z: np.ndarray) -> tuple[float, float]:
    """The percentile 95 % confidence interval."""
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(replicates_Z, [tail, 100.0 - tail])
    return float(low), float(high)


def unit_differences(first: Outcomes, second: Outcomes) -> np.ndarray:
    """Each episode's share of the difference of two completions, in points; they sum to it.

    Training seeds are averaged, so the null hypothesis speaks of the policies at hand.

    Returns:
        float64 (R * E,).
    """
    difference_RE = first.completed_SRE.mean(0) - second.completed_SRE.mean(0)
    return (100.0 * difference_RE / first.tasks_RE.sum()).ravel()


def sign_flip_p(difference_E: np.ndarray, rng: np.random.Generator, resamples: int = SIGN_PATTERNS) -> float:
    """Two-sided p of a paired permutation test: under the null each episode's difference may change sign.

    Exact when there are at most `resamples` sign patterns, Monte Carlo otherwise.
    """
    moved_E = difference_E[difference_E != 0.0]  # a zero has no sign to flip: the same p, fewer patterns
    if len(moved_E) < 2:
        return 1.0
    test = permutation_test(
        (moved_E,),
        np.sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=1000,
        rng=rng,
    )
    return float(test.pvalue)


Key = TypeVar("Key", bound=Hashable)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Holm's step-down correction over a family of p values."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    corrected: dict[Key, float] = {}
    highest = 0.0
    for rank, name in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ordered) - rank) * p_values[name]))
        corrected[name] = highest
    return corrected
