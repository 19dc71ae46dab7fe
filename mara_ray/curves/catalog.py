"""The task families: which model learns which data, and the hyperparameters they are drawn from.

The ranges are those that gave varied learning curves when measured; a new family is a new entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mara_ray.errors import UserError

Modality = Literal["image", "text", "control"]
Hyperparameters = dict[str, Any]


@dataclass(frozen=True)
class Configuration:
    """One model-dataset configuration.

    Attributes:
        name: as in `curves.configurations` of the run configuration.
        set: "id" for curves that predictors and allocators may learn from; "rl" and "vit" are only
            for tests out of distribution.
        modality: which data it trains on.
        draw: draws the hyperparameters of one training (JSON values) from a random stream.
    """

    name: str
    set: Literal["id", "rl", "vit"]
    modality: Modality
    draw: Callable[[np.random.Generator], Hyperparameters]


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def _choice(rng: np.random.Generator, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def _optimiser(rng: np.random.Generator, **learning_rates: tuple[float, float]) -> Hyperparameters:
    """An optimiser, its learning rate from that optimiser's range, and what all families share."""
    name = _choice(rng, *learning_rates)
    return {
        "optimiser": name,
        "learning_rate": _log_uniform(rng, *learning_rates[name]),
        "weight_decay": _choice(rng, 0.0, 0.0, 1e-4, 1e-3),
        "schedule": _choice(rng, "constant", "constant", "cosine", "step"),
        "warmup_batches": 0,
        "batch_size": _choice(rng, 16, 32),
    }


def _image_data(rng: np.random.Generator) -> Hyperparameters:
    return {
        "classes": _choice(rng, 3, 5, 10, 10, 10),
        "examples": round(_log_uniform(rng, 500, 6000)),
        "label_noise": _choice(rng, 0.0, 0.0, 0.05, 0.1, 0.2),
        "augmentation": _choice(rng, "none", "shift", "erase"),
    }


def _text_data(rng: np.random.Generator) -> Hyperparameters:
    return {
        "examples": int(rng.integers(300, 2001)),
        "vocabulary": _choice(rng, 500, 1000, 2000),
        "label_noise": _choice(rng, 0.0, 0.0, 0.05, 0.1),
        "word_dropout": float(rng.uniform(0, 0.3)),
    }


def _img_mlp(rng: np.random.Generator) -> Hyperparameters:
    return {
        "model": "mlp",
        "depth": _choice(rng, 1, 2, 3),
        "width": _choice(rng, 16, 32, 64, 128),
        "activation": _choice(rng, "relu", "tanh", "gelu"),
        **_optimiser(rng, sgd=(5e-3, 0.15), adam=(2e-4, 5e-3), rmsprop=(2e-4, 2e-3)),
        **_image_data(rng),
    }


def _img_cnn(rng: np.random.Generator) -> Hyperparameters:
    return {
        "model": "cnn",
        "width": _choice(rng, 4, 8),
        "dropout": _choice(rng, 0.0, 0.25),
        **_optimiser(rng, sgd=(5e-3, 0.1), adam=(4e-4, 8e-3)),
        **_image_data(rng),
    }


def _txt_bow(rng: np.random.Generator) -> Hyperparameters:
    return {
        "model": "bow",
        "width": _choice(rng, 8, 16, 32),
        "dropout": _choice(rng, 0.0, 0.2, 0.4),
        **_optimiser(rng, adam=(6e-3, 5e-2), rmsprop=(4e-3, 3e-2)),
        **_text_data(rng),
    }


def _vit_fmnist(rng: np.random.Generator) -> Hyperparameters:
    return {
        "model": "vit",
        "patch": _choice(rng, 4, 8),
        "width": _choice(rng, 16, 24, 32),
        "depth": _choice(rng, 1, 2, 3),
        "heads": _choice(rng, 2, 4),
        **_optimiser(rng, adamw=(1.5e-4, 4e-3), sgd=(1e-2, 0.2)),
        **_image_data(rng),
        "warmup_batches": _choice(rng, 0, 40, 120),
    }


def _rl_cartpole_ppo(rng: np.random.Generator) -> Hyperparameters:
    return {
        "model": "actor_critic",
        "width": _choice(rng, 16, 32, 64),
        **_optimiser(rng, adam=(4e-4, 4e-3)),
        "weight_decay": 0.0,
        "schedule": "linear",
        "carts": 32,
        "rollout_steps": _choice(rng, 4, 8),
        "epochs": _choice(rng, 1, 2),
        "max_steps": _choice(rng, 200, 300, 500),
        "discount": _choice(rng, 0.97, 0.98, 0.99),
        "entropy_weight": _choice(rng, 0.0, 0.005, 0.02),
    }


CONFIGURATIONS: dict[str, Configuration] = {
    entry.name: entry
    for entry in (
        Configuration("img_mlp", "id", "image", _img_mlp),
        Configuration("img_cnn", "id", "image", _img_cnn),
        Configuration("txt_bow", "id", "text", _txt_bow),
        Configuration("vit_fmnist", "vit", "image", _vit_fmnist),
        Configuration("rl_cartpole_ppo", "rl", "control", _rl_cartpole_ppo),
    )
}


def configuration_named(name: str) -> Configuration:
    """Look a configuration up.

    Raises:
        UserError: there is none of this name.
    """
    if name not in CONFIGURATIONS:
        known = ", ".join(CONFIGURATIONS)
        raise UserError(f"curves.configurations: {name!r} is unknown; use some of {known}")
    return CONFIGURATIONS[name]
