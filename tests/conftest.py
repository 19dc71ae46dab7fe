"""Fixtures shared by all tests: a toy curve bank that needs no training."""

from __future__ import annotations

import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_MODE", "offline")

import numpy as np
import pytest

from mara_ray.curves.bank import CurveBank, smooth

TOY_LENGTH_POINTS = 60


def make_toy_bank(
    curves_per_set: int = 20, length_points: int = TOY_LENGTH_POINTS, seed: int = 0
) -> CurveBank:
    """Noisy power-law curves in three sets (configurations img_mlp, rl_cartpole_ppo, vit_fmnist)."""
    rng = np.random.default_rng(seed)
    rows = []
    for set_name, configuration in (("id", "img_mlp"), ("rl", "rl_cartpole_ppo"), ("vit", "vit_fmnist")):
        for number in range(curves_per_set):
            point_L = np.arange(1, length_points + 1)
            raw_L = rng.uniform(0.5, 3.0) * point_L ** -rng.uniform(0.1, 0.8)
            raw_L = (raw_L * rng.lognormal(0, 0.03, length_points)).astype(np.float32)
            split = (
                ("train", "validation", "test", "train", "test")[number % 5] if set_name == "id" else "test"
            )
            rows.append(
                {
                    "curve_id": f"{configuration}/{number:05d}",
                    "configuration": configuration,
                    "set": set_name,
                    "split": split,
                    "seed": number,
                    "accepted": True,
                    "status": "ok",
                    "hyperparameters": json.dumps({"toy": True}),
                    "raw": raw_L.tolist(),
                    "ema": smooth(raw_L[None])[0].tolist(),
                }
            )
    return CurveBank.from_rows(rows, source="toy")


@pytest.fixture(scope="session")
def toy_bank() -> CurveBank:
    return make_toy_bank()
