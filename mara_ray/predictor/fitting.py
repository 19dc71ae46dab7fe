"""Flow matching: the loss, one epoch of it, and what a training carries from epoch to epoch. No Ray here.

Axis letters: C curves, L points, P prefixes, D features, E encoding, H bins, G target levels, B prefixes.
Every epoch draws from a stream of its own, (seed, epoch), and `FlowTraining.state_dict` holds all that
outlives an epoch, so a training that was killed ends with the weights of one that was not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import first_crossing
from mara_ray.predictor.augment import augment
from mara_ray.predictor.flow import FlowNetwork, FlowPredictor, FlowShape, prefix_features, starting_noise
from mara_ray.predictor.prefixes import PrefixPredictor
from mara_ray.predictor.questions import draw_targets
from mara_ray.predictor.scoring import crps
from mara_ray.predictor.ways import cases_of, example_ways
from mara_ray.seeding import generator, seed_integer

PREFIXES_PER_CURVE = 64  # of a gradient step: the GRU encodes all of them, the velocity net learns from these
GRADIENT_CLIP = 1.0
AVERAGE_DECAY = 0.99  # of the exponential moving average of the weights
VALIDATION_LEVELS = 16  # targets of each validation curve, evenly spread over the fractions expected
SPREADS = np.round(np.linspace(1.0, 3.0, 9), 2).tolist()  # tried on the validation curves
VALIDATION_PREFIXES = 8  # of each validation curve, evenly spread


class FlowTraining:
    """All that training carries from one epoch to the next."""

    def __init__(
        self, config: PredictorConfig, train_CL: np.ndarray, seed: int, device: torch.device
    ) -> None:
        self.config = config
        self.seed = seed
        self.device = device
        torch.manual_seed(seed_integer(seed, "predictor", "weights"))
        self.network = FlowNetwork(_shape(config))
        feature_CLD = torch.from_numpy(prefix_features(train_CL)).float()
        way_CPH = torch.from_numpy(example_ways(config, train_CL, seed)).float()
        _standardise(self.network, feature_CLD, way_CPH)
        self.network.to(device)
        self.train_CL = train_CL
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate)
        self.latest_time = 1 - 1 / config.euler_steps  # the sampler asks for no later velocity
        self.batches_per_epoch = math.ceil(len(train_CL) / config.batch_curves)
        self.average = _copy(self.network.state_dict())
        self.best = _copy(self.average)
        self.best_score = math.inf
        self.best_epoch = 0
        self.epoch = 0  # epochs done

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done, or the validation error has not fallen for too many of them."""
        waited = self.epoch - self.best_epoch
        return self.epoch >= self.config.epochs or waited >= self.config.patience_epochs

    def run_epoch(self, rank: int, world_size: int) -> float:
        """One pass over the training curves; returns the mean loss of this rank."""
        rng = generator(self.seed, "predictor", "epoch", self.epoch)
        losses = []
        batches = np.array_split(rng.permutation(len(self.train_CL)), self.batches_per_epoch)
        for number, curves in enumerate(batches):
            # All ranks draw for the whole batch, and each takes its share: the draws are those of one worker.
            size = len(curves), PREFIXES_PER_CURVE
            batch_CL, end_C = augment(self.train_CL[curves], rng, self.config)
            # Points seen: from the warm-up to one short of the end, with a step at least to look ahead.
            first = np.minimum(self.config.warmup_points, end_C - 1)[:, None]
            num_seen = first + (rng.random(size) * (end_C[:, None] - first)).astype(np.int64)
            time = rng.random((*size, 1), np.float32) * np.float32(self.latest_time)
            z0 = rng.standard_normal((*size, self.config.horizon_bins), np.float32)
            share_of_targets = rng.random(size)
            share = slice(rank, None, world_size)
            self._set_learning_rate((self.epoch + number / len(batches)) / self.config.epochs)
            lowest_CL = np.minimum.accumulate(batch_CL, axis=1)
            target_CP, weight_CP = draw_targets(
                lowest_CL, num_seen, share_of_targets, self.config.target_fractions
            )
            weight_CP /= weight_CP.sum()
            loss = self._loss(
                *(x[share] for x in (batch_CL, lowest_CL, end_C, num_seen, target_CP, weight_CP, time, z0))
            )
            self.optimizer.zero_grad()
            loss.backward()
            _sum_gradients(self.network, world_size)
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), GRADIENT_CLIP)
            self.optimizer.step()
            self._update_average(self.epoch * len(batches) + number)
            losses.append(world_size * float(loss.detach()))
        self.epoch += 1
        return float(np.mean(losses))

    def _loss(
        self,
        ema_CL: np.ndarray,
        lowest_CL: np.ndarray,
        end_C: np.ndarray,
        num_seen_CP: np.ndarray,
        target_CP: np.ndarray,
        weight_CP: np.ndarray,
        time_CP1: np.ndarray,
        noise_CPH: np.ndarray,
    ) -> Tensor:
        """The flow-matching loss, sum of w |v(z_u, u, c) - (z1 - z0)|^2 / H with z_u = (1 - u) z0 + u z1."""
        asked_CPQ, gone_CPH = cases_of(self.config, ema_CL, lowest_CL, end_C, num_seen_CP, target_CP)
        feature_CLD, question_CPQ, way_CPH, weight_CP1, u_CP1, z0_CPH = (
            torch.from_numpy(array).float().to(self.device)
            for array in (
                prefix_features(ema_CL, end_C),
                asked_CPQ,
                gone_CPH,
                weight_CP[..., None],
                time_CP1,
                noise_CPH,
            )
        )
        encoding_CLE = self.network.encode(feature_CLD)
        encoding_CPE = encoding_CLE[np.arange(len(ema_CL))[:, None], num_seen_CP - 1]
        z1_CPH = (way_CPH - self.network.way_mean_H) / self.network.way_scale_H
        z_CPH = (1 - u_CP1) * z0_CPH + u_CP1 * z1_CPH
        context_CPW = self.network.condition(encoding_CPE, question_CPQ)
        velocity_CPH = self.network.step(z_CPH, u_CP1, context_CPW)
        return (weight_CP1 * (velocity_CPH - (z1_CPH - z0_CPH)).square()).sum() / z1_CPH.shape[2]

    def _set_learning_rate(self, done: float) -> None:
        warm = min(1.0, 0.05 + done / 0.05)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * done))

    def _update_average(self, num_steps: int) -> None:
        decay = min(AVERAGE_DECAY, (1 + num_steps) / (10 + num_steps))
        for name, value in self.network.state_dict().items():
            self.average[name].lerp_(value, 1 - decay)

    def keep_if_best(self, score: float) -> int:
        """Remember the averaged weights if their validation score is the lowest; returns the best epoch."""
        if score < self.best_score:
            self.best, self.best_score, self.best_epoch = _copy(self.average), score, self.epoch
        return self.best_epoch

    def state_dict(self) -> dict[str, Any]:
        """Everything as plain tensors and numbers."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            **{
                name: getattr(self, name) for name in ("average", "best", "best_score", "best_epoch", "epoch")
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = {name: value.to(self.device) for name, value in state["average"].items()}
        self.best = state["best"]
        self.best_score, self.best_epoch, self.epoch = (
            state[name] for name in ("best_score", "best_epoch", "epoch")
        )


def make_predictor(config: PredictorConfig, weights: dict[str, Tensor], seed: int) -> FlowPredictor:
    """A predictor with a copy of these weights, on the CPU."""
    network = FlowNetwork(_shape(config))
    network.load_state_dict(weights)
    return FlowPredictor(
        _shape(config), network, starting_noise(config.num_samples, config.horizon_bins, seed)
    )


def validation_error(
    predictor: PrefixPredictor, validation_CL: np.ndarray, fractions: tuple[float, float]
) -> float:
    """Mean capped error, in steps, of the median demand over validation prefixes and targets not yet met.

    Args:
        predictor: asked for the demand.
        validation_CL: smoothed losses.
        fractions: of a curve's log-drop, between which the targets lie.
    """
    steps_XN, truth_X = _validation_cases(predictor, validation_CL, fractions)
    return float(np.abs(np.median(steps_XN, axis=1) - truth_X).mean())


def calibrated(
    predictor: FlowPredictor, validation_CL: np.ndarray, fractions: tuple[float, float]
) -> FlowPredictor:
    """The predictor with the spread of its samples that has the least CRPS on the validation curves."""
    scores = {
        spread: crps(*_validation_cases(predictor.with_spread(spread), validation_CL, fractions)).mean()
        for spread in SPREADS
    }
    return predictor.with_spread(min(scores, key=scores.__getitem__))


def _validation_cases(
    predictor: PrefixPredictor, validation_CL: np.ndarray, fractions: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts (X, N) and true steps (X,), capped, of validation prefixes and targets not yet met."""
    length = validation_CL.shape[1]
    initial_C1 = validation_CL[:, :1].astype(np.float64)
    lowest_C1 = validation_CL.min(1, keepdims=True)
    target_CG = (initial_C1 * (lowest_C1 / initial_C1) ** np.linspace(*fractions, VALIDATION_LEVELS)).astype(
        np.float32
    )
    seen_P = np.linspace(predictor.warmup_points, length - 1, VALIDATION_PREFIXES + 1).astype(int)[:-1]
    curve_B = np.repeat(np.arange(len(validation_CL)), len(seen_P))
    seen_B = np.tile(seen_P, len(validation_CL))
    steps_BGN = predictor.predict_prefixes(validation_CL, curve_B, seen_B, target_CG[curve_B])
    needed_BG = first_crossing(validation_CL, target_CG)[curve_B] - seen_B[:, None]
    truth_BG = np.minimum(needed_BG, length - seen_B[:, None])
    return steps_BGN[needed_BG > 0].astype(np.float64), truth_BG[needed_BG > 0]


def _sum_gradients(network: FlowNetwork, world_size: int) -> None:
    if world_size == 1:
        return
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    torch.distributed.all_reduce(flat)
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def _standardise(network: FlowNetwork, feature_CLD: Tensor, way_CPH: Tensor) -> None:
    """Set the standardisation from the training curves."""
    network.feature_mean_D.copy_(feature_CLD.mean((0, 1)))
    network.feature_scale_D.copy_(feature_CLD.std((0, 1)) + 1e-6)
    network.way_mean_H.copy_(way_CPH.mean((0, 1)))
    network.way_scale_H.copy_(way_CPH.std((0, 1)) + 1e-6)


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


def _shape(config: PredictorConfig) -> FlowShape:
    return FlowShape(**{name: getattr(config, name) for name in FlowShape.__dataclass_fields__})
