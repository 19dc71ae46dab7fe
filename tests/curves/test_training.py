"""A task is the same whenever and wherever it runs, paused or not; what it learns is real."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from mara_ray.curves.catalog import CONFIGURATIONS
from mara_ray.curves.datasets.atari import Play
from mara_ray.curves.embedded import EMBEDDED
from mara_ray.curves.temporal_difference import n_step_rewards
from mara_ray.curves.training import CatalogTask, learning_rate_share, make_task
from mara_ray.errors import UserError
from mara_ray.seeding import generator


def task_of(name: str, seed: int = 3, **changes: object) -> CatalogTask:
    hyperparameters = CONFIGURATIONS[name].draw(generator(seed, "hyperparameters"))
    return make_task(name, {**hyperparameters, "schedule_batches": 60, **changes}, seed, batches_per_point=2)


def optimisers_of(name: str) -> list[str]:
    draws = (CONFIGURATIONS[name].draw(np.random.default_rng(seed)) for seed in range(60))
    return sorted({draw["optimiser"] for draw in draws})


NAMES = [entry.name for entry in EMBEDDED]
CASES = [(name, optimiser) for name in NAMES for optimiser in optimisers_of(name)]


@pytest.mark.parametrize(("name", "optimiser"), CASES)
def test_pause_and_resume_is_bitwise(name: str, optimiser: str) -> None:
    changes = {"optimiser": optimiser, "schedule": "cosine", "learning_rate": 1e-3}
    if name in ("img_cnn", "txt_bow"):
        changes["dropout"] = 0.25
    if name.startswith("spk"):
        changes |= {"feature_noise": 0.3, "time_mask_frames": 8}
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


@pytest.mark.parametrize("name", NAMES)
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


EASY = {
    "img_mlp": (5e-3, {"classes": 3}),
    "img_cnn": (5e-3, {"classes": 3}),
    "img_resnet": (5e-3, {"classes": 3}),
    "txt_bow": (4e-2, {"word_dropout": 0.0}),
    "txt_cnn": (2e-2, {"word_dropout": 0.0, "examples": 300}),
    "txt_rnn": (3e-2, {"word_dropout": 0.0, "examples": 300}),
    "spk_cnn": (5e-3, {"feature_noise": 0.0, "examples": 60, "width": 16}),
    "spk_rnn": (1.2e-2, {"feature_noise": 0.0, "time_mask_frames": 0}),
    "vit_fmnist": (4e-3, {"classes": 3, "warmup_batches": 0}),
    "rl_atari_value": (3e-3, {"game": "boxing", "examples": 500, "width": 128}),
    "rl_atari_dqn": (3e-3, {"game": "pong", "examples": 500, "width": 128, "num_steps": 1}),
}


@pytest.mark.parametrize("name", EASY)
def test_it_learns(name: str) -> None:
    learning_rate, easy = EASY[name]
    common = {"optimiser": "adam", "learning_rate": learning_rate, "label_noise": 0.0, "schedule": "constant"}
    task = task_of(name, **common, **easy)
    points = [task.run_block() for _ in range(100)]
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
    with pytest.raises(
        UserError, match=r"curves\.configurations: 'img_mpl' is unknown; the nearest is 'img_mlp'"
    ):
        make_task("img_mpl", {}, 0, 1)


def test_n_step_rewards_by_hand() -> None:
    play = Play(
        frame=np.zeros((5, 1), np.float32),
        action_N=np.zeros(5, np.int64),
        reward_N=np.array([1, 2, 4, 8, 16], np.float32),
        ended_N=np.array([False, True, False, False, False]),
        num_actions=2,
    )
    reward_N, going_on_N = n_step_rewards(play, 2, 0.5)
    assert reward_N.tolist() == [1 + 1, 2, 4 + 4] and going_on_N.tolist() == [False, False, True]
    assert n_step_rewards(play, 1, 0.5)[0].tolist() == [1, 2, 4, 8]


def test_dqn_goal_by_hand() -> None:
    """One mini-batch against the textbook formula: the chosen action, double or not."""
    for double in (False, True):
        task = task_of("rl_atari_dqn", double=double, num_steps=1, discount=0.95)
        task.run_block()
        problem = task.problem
        torch.manual_seed(5)
        loss = next(problem.losses(np.random.default_rng(0)))
        torch.manual_seed(5)
        rows = torch.randint(len(problem.reward_N), (task.hyperparameters["batch_size"],))
        expected = []
        for row in rows:
            with torch.no_grad():
                online, slow = problem.model(problem.next_frame[row]), problem.target(problem.next_frame[row])
            best = slow[online.argmax()] if double else slow.max()
            goal = problem.reward_N[row] + problem.next_weight_N[row] * best
            value = problem.model(problem.frame[row])[problem.action_N1[row, 0]]
            error = abs(float((value - goal).detach()))
            expected.append(0.5 * error**2 if error < 1 else error - 0.5)
        assert loss.item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_target_network_follows_by_polyak_averaging() -> None:
    task = task_of("rl_atari_dqn", polyak=0.25, batch_size=16)
    before = [weight.clone() for weight in task.problem.target.parameters()]
    task.batches_per_point = 1
    task.run_block()
    for old, slow, fast in zip(
        before, task.problem.target.parameters(), task.problem.model.parameters(), strict=True
    ):
        assert torch.allclose(slow, 0.75 * old + 0.25 * fast)
