"""The optimisation: restartable, fed by the training curves alone, and it learns."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.predictor.fitting import (
    SPREADS,
    FlowTraining,
    _validation_cases,
    calibrated,
    make_predictor,
    validation_error,
)
from mara_ray.predictor.flow import prefix_features
from mara_ray.predictor.scoring import crps
from mara_ray.predictor.ways import example_ways

FRACTIONS = (0.3, 1.05)
CONFIG = PredictorConfig(encoder_width=12, velocity_width=24, epochs=4, batch_curves=3)


@pytest.fixture
def train_CL(toy_bank: CurveBank) -> np.ndarray:
    return toy_bank.ema_CL[toy_bank.rows("id", "train")]


def start(train_CL: np.ndarray, seed: int = 0, config: PredictorConfig = CONFIG) -> FlowTraining:
    return FlowTraining(config, train_CL, seed, torch.device("cpu"))


def equal(first: dict, second: dict) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_stopped_and_resumed_is_unbroken(train_CL: np.ndarray) -> None:
    unbroken = start(train_CL)
    losses = [unbroken.run_epoch(0, 1) for _ in range(4)]
    stopped = start(train_CL)
    assert [stopped.run_epoch(0, 1) for _ in range(2)] == losses[:2]
    assert stopped.keep_if_best(5.0) == 2
    file = io.BytesIO()
    torch.save(stopped.state_dict(), file)
    file.seek(0)
    resumed = start(train_CL)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert [resumed.run_epoch(0, 1) for _ in range(2)] == losses[2:]
    assert equal(resumed.network.state_dict(), unbroken.network.state_dict())
    assert equal(resumed.average, unbroken.average)
    assert equal(resumed.best, stopped.best)
    assert resumed.keep_if_best(6.0) == 2


def test_the_seed_decides(train_CL: np.ndarray) -> None:
    first, same, other = start(train_CL), start(train_CL), start(train_CL, seed=1)
    for training in (first, same, other):
        training.run_epoch(0, 1)
    assert equal(first.average, same.average)
    assert not equal(first.average, other.average)


def test_two_shares_make_one_batch(train_CL: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """What two workers sum to is what one computes: checked on the gradients of the first step."""
    gradients: list[list[torch.Tensor]] = []

    def keep(network: torch.nn.Module, world_size: int) -> None:
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])

    monkeypatch.setattr("mara_ray.predictor.fitting._sum_gradients", keep)
    config = CONFIG.model_copy(update={"batch_curves": len(train_CL)})  # one step an epoch
    for rank, world_size in ((0, 1), (0, 2), (1, 2)):
        start(train_CL, config=config).run_epoch(rank, world_size)
    for whole, first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first + second, whole, rtol=1e-4, atol=1e-6)


def test_standardisation_is_of_the_training_curves(toy_bank: CurveBank, train_CL: np.ndarray) -> None:
    """Neither validation nor test curves move it, and prefixes under the warm-up do not count."""
    network = start(train_CL).network
    way_CPH = example_ways(CONFIG, train_CL, 0)
    assert way_CPH.shape[1] == train_CL.shape[1] - CONFIG.warmup_points
    np.testing.assert_allclose(network.way_mean_H, way_CPH.mean((0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(network.way_scale_H, way_CPH.std((0, 1), ddof=1), rtol=1e-3)
    features = prefix_features(train_CL)
    np.testing.assert_allclose(network.feature_mean_D, features.mean((0, 1)), rtol=1e-4, atol=1e-5)
    everything = start(toy_bank.ema_CL).network
    assert not torch.equal(everything.way_mean_H, network.way_mean_H)


def test_validation_error_of_a_known_forecast(toy_bank: CurveBank) -> None:
    """An oracle has no error; one that is two steps late everywhere (and not capped) has two."""
    validation_CL = toy_bank.ema_CL[toy_bank.rows("id", "validation")]

    class Late:
        warmup_points = 4

        def __init__(self, steps: int) -> None:
            self.steps = steps

        def predict_prefixes(self, ema_CL, curve_B, num_seen_B, target_BG):  # type: ignore[no-untyped-def]
            reached_BGL = ema_CL[curve_B][:, None] <= target_BG[..., None]
            length = ema_CL.shape[1]
            needed_BG = np.where(reached_BGL.any(2), reached_BGL.argmax(2) + 1, 10 * length)
            cap_B1 = length - num_seen_B[:, None]
            return (np.minimum(needed_BG - num_seen_B[:, None], cap_B1) + self.steps)[..., None]

    assert validation_error(Late(0), validation_CL, FRACTIONS) == 0  # type: ignore[arg-type]
    assert validation_error(Late(2), validation_CL, FRACTIONS) == 2  # type: ignore[arg-type]


def test_the_spread_is_that_of_least_score(toy_bank: CurveBank, train_CL: np.ndarray) -> None:
    predictor = make_predictor(CONFIG, start(train_CL).network.state_dict(), seed=0)
    validation_CL = toy_bank.ema_CL[toy_bank.rows("id", "validation")]
    found = calibrated(predictor, validation_CL, FRACTIONS)
    assert found.spread in SPREADS
    scores = [
        crps(*_validation_cases(predictor.with_spread(spread), validation_CL, FRACTIONS)).mean()
        for spread in SPREADS
    ]
    assert scores[SPREADS.index(found.spread)] == min(scores)
    assert validation_error(found, validation_CL, FRACTIONS) == pytest.approx(
        validation_error(predictor, validation_CL, FRACTIONS), abs=0.1
    )


def test_it_learns(train_CL: np.ndarray) -> None:
    training = start(train_CL, config=CONFIG.model_copy(update={"epochs": 30}))
    losses = [training.run_epoch(0, 1) for _ in range(30)]
    assert losses[-1] < 0.6 * losses[0]
