"""What a model-dataset configuration is, and the draws that the configurations share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mara_ray.curves.problem import Problem

Hyperparameters = dict[str, Any]


@dataclass(frozen=True)
class Configuration:
    """One model-dataset configuration.

    Attributes:
        name: as in `curves.configurations` of the run configuration.
        set: "id" for curves that predictors and allocators may learn from; "rl" and "vit" are only
            for tests out of distribution.
        data: name of the data in `mara_ray.curves.datasets.MISSING`; None if it needs none.
        draw: draws the hyperparameters of one training (JSON values) from a random stream.
        problem: builds what is learned: (hyperparameters, random stream, device, data folder).
    """

    name: str
    set: Literal["id", "rl", "vit"]
    data: str | None
    draw: Callable[[np.random.Generator], Hyperparameters]
    problem: Callable[[Hyperparameters, np.random.Generator, str, Path], Problem]


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A value whose logarithm is uniform."""
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def choice(rng: np.random.Generator, *values: Any) -> Any:
    """One of some values; repeat one to make it likelier."""
    return values[rng.integers(len(values))]


def optimiser(
    rng: np.random.Generator, batch_sizes: tuple[int, ...] = (16, 32), **learning_rates: tuple[float, float]
) -> Hyperparameters:
    """An optimiser, its learning rate from that optimiser's range, and what all families share."""
    name = choice(rng, *learning_rates)
    return {
        "optimiser": name,
        "learning_rate": log_uniform(rng, *learning_rates[name]),
        "weight_decay": choice(rng, 0.0, 0.0, 1e-4, 1e-3),
        "schedule": choice(rng, "constant", "constant", "cosine", "step"),
        "warmup_batches": 0,
        "batch_size": choice(rng, *batch_sizes),
    }
