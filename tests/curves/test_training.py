"""A task is the same whenever and wherever it runs, paused or not; what it learns is real."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from mara_ray.curves.catalog import CONFIGURATIONS
from mara_ray.curves.training import LearningTask, learning_rate_share, make_task
from mara_ray.errors import UserError
from mara_ray.seeding import generator


def task_of(name: str, seed: int = 3, **changes: object) -> LearningTask:
    hyperparameters = CONFIGURATIONS[name].draw(generator(seed, "hyperparameters"))
    return make_task(name, {**hyperparameters, "schedule_batches": 60, **changes}, seed, batches_per_point=2)


def optimisers_of(name: str) -> list[str]:
    draws = (CONFIGURATIONS[name].draw(np.random.default_rng(seed)) for seed in range(60))
    return sorted({draw["optimiser"] for draw in draws})


CASES = [(name, optimiser) for name in CONFIGURATIONS for optimiser in optimisers_of(name)]


@pytest.mark.parametrize(("name", "optimiser"), CASES)
def test_pause_and_resume_is_bitwise(name: str, optimiser: str) -> None:
    changes = {"optimiser": optimiser, "schedule": "cosine", "learning_rate": 1e-3}
    if name in ("img_cnn", "txt_bow"):
        changes["dropout"] = 0.25
    unbroken = task_of(name, **changes)
    points = [unbroken.run_block() for _ in range(12)]

    first = task_of(name, **changes)
    assert [first.run_block() for _ in range(5)] == points[:5]
    stored = io.BytesIO()
    torch.save(first.state_dict(), stored)
    first.run_block()  # what the old one does after the pause must not matter
    stored.seek(0)
    second = task_of(name, **changes)
    second.load_state_dict(torch.load(stored, weights_only=False))
    assert [second.run_block() for _ in range(7)] == points[5:]
    for key, weight in unbroken.problem.model.state_dict().items():
        assert torch.equal(weight, second.problem.model.state_dict()[key]), key


def test_a_state_is_a_copy() -> None:
    task = task_of("img_mlp")
    task.run_block()
    state = task.state_dict()
    expected = [task.run_block() for _ in range(3)]
    for _ in range(2):
        task.load_state_dict(state)
        assert [task.run_block() for _ in range(3)] == expected


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_tasks_do_not_disturb_each_other_or_the_caller(name: str) -> None:
    alone = task_of(name)
    points = [alone.run_block() for _ in range(4)]
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one, other = task_of(name), task_of("img_mlp", seed=8)
    interleaved = []
    for _ in range(4):
        interleaved.append(one.run_block())
        other.run_block()
    assert interleaved == points
    assert torch.equal(torch.rand(3), expected)


def test_seeds_differ() -> None:
    assert task_of("img_mlp", seed=1).run_block() != task_of("img_mlp", seed=2).run_block()


def test_initial_loss_is_that_of_guessing() -> None:
    task = task_of("img_cnn", classes=10, label_noise=0.0)
    assert task.initial_loss == pytest.approx(np.log(10), rel=0.15)
    assert task_of("txt_bow").initial_loss == pytest.approx(np.log(2), rel=0.15)


@pytest.mark.parametrize("name", ["img_mlp", "img_cnn", "txt_bow", "vit_fmnist"])
def test_it_learns(name: str) -> None:
    easy = {"optimiser": "adam", "learning_rate": 5e-3, "label_noise": 0.0, "schedule": "constant"}
    easy |= {"learning_rate": 4e-2, "word_dropout": 0.0} if name == "txt_bow" else {"classes": 3}
    task = task_of(name, **easy)
    points = [task.run_block() for _ in range(60)]
    assert np.mean(points[-10:]) < 0.85 * task.initial_loss


def test_cartpole_is_learned_and_read_from_returns() -> None:
    task = task_of(
        "rl_cartpole_ppo", learning_rate=3e-3, schedule="constant", max_steps=200, rollout_steps=8, epochs=2
    )
    assert 0.8 < task.initial_loss <= 1
    points = [task.run_block() for _ in range(120)]
    assert all(0.01 <= point <= 1 for point in points)
    assert min(points) < 0.5


def test_learning_rate_schedules() -> None:
    assert learning_rate_share("constant", 599, 600, 0) == 1
    assert learning_rate_share("cosine", 0, 600, 0) == 1
    assert learning_rate_share("cosine", 600, 600, 0) == pytest.approx(0.02)
    assert learning_rate_share("cosine", 900, 600, 0) == pytest.approx(0.02)
    assert learning_rate_share("step", 359, 600, 0) == 1
    assert learning_rate_share("step", 360, 600, 0) == 0.1
    assert learning_rate_share("linear", 300, 600, 0) == 0.5
    assert learning_rate_share("linear", 600, 600, 0) == 0.05
    assert learning_rate_share("constant", 19, 600, 39) == 0.5
    assert learning_rate_share("constant", 39, 600, 39) == 1


def test_unknown_configuration() -> None:
    with pytest.raises(UserError, match=r"curves\.configurations: 'img_mpl' is unknown; use some of img_mlp"):
        make_task("img_mpl", {}, 0, 1)
