"""Drawn hyperparameters are JSON values that make a working task; configurations cover the sets."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mara_ray.curves.catalog import CONFIGURATIONS
from mara_ray.curves.embedded import EMBEDDED
from mara_ray.curves.full_scale import FULL_SCALE
from mara_ray.curves.training import make_task


def test_sets() -> None:
    sets = {entry.name: entry.set for entry in EMBEDDED}
    assert [name for name, set_name in sets.items() if set_name == "id"] == [
        "img_mlp",
        "img_cnn",
        "img_resnet",
        "txt_bow",
        "txt_cnn",
        "txt_rnn",
        "spk_cnn",
        "spk_rnn",
    ]
    assert [name for name, set_name in sets.items() if set_name == "vit"] == ["vit_fmnist"]
    assert [name for name, set_name in sets.items() if set_name == "rl"] == [
        "rl_cartpole_ppo",
        "rl_atari_value",
        "rl_atari_dqn",
    ]
    assert len(CONFIGURATIONS) == len(EMBEDDED) + len(FULL_SCALE)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_draws_are_varied_json_and_follow_the_stream(name: str) -> None:
    draws = [CONFIGURATIONS[name].draw(np.random.default_rng(seed)) for seed in (*range(20), 0)]
    assert all(json.loads(json.dumps(draw)) == draw for draw in draws)
    assert draws[0] == draws[-1]
    assert len({json.dumps(draw) for draw in draws}) == 20


@pytest.mark.parametrize("name", [entry.name for entry in EMBEDDED])
def test_every_draw_can_be_trained(name: str) -> None:
    for seed in range(8):
        hyperparameters = CONFIGURATIONS[name].draw(np.random.default_rng(seed))
        task = make_task(name, {**hyperparameters, "schedule_batches": 20}, seed, batches_per_point=1)
        losses = [task.initial_loss, task.run_block(), task.run_block()]
        assert np.isfinite(losses).all() and min(losses) > 0
