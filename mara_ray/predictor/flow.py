"""The flow-matching predictor: from a loss prefix and a target to sampled futures, read as steps needed.

Axis letters: B prefixes, C curves, L points, N samples, H bins, D features, E encoding, Q what is told of
a target, W hidden width, G target levels, X forecasts (a prefix and a target each).
Everything is scale-free: only ratios of losses go in, and only ratios come out. The future is that of the
lowest loss so far, since that is what a target waits for, measured in ways to the target.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from mara_ray.predictor.prefixes import PrefixPredictor
from mara_ray.predictor.questions import NUM_QUESTIONS, target_questions
from mara_ray.predictor.targets import bin_edges, first_crossing_steps, widened
from mara_ray.predictor.ways import losses_on_the_way, way_unit
from mara_ray.predictor.weights import load_weights, save_weights
from mara_ray.seeding import generator

TREND_LAGS = (1, 8, 32)  # points back to which the loss is compared
TIME_FREQUENCIES = 8
FORECASTS_PER_PASS = 256  # of the sampler: their float64 activations stay in the cache


@dataclass(frozen=True)
class FlowShape:
    """What the weights depend on, and the settings of the sampler; see `PredictorConfig`."""

    horizon_bins: int
    last_bin_ratio: float
    tell_target: bool
    encoder_width: int
    velocity_width: int
    num_samples: int
    euler_steps: int
    warmup_points: int


def prefix_features(ema_CL: np.ndarray, length_C: np.ndarray | None = None) -> np.ndarray:
    """What the encoder reads at each point: float64 (C, L, D), causal and scale-free.

    Log loss against the first point, against the lowest so far and against `TREND_LAGS` points ago, log
    points seen and log points left until the curve's end: L, or its entry of `length_C` if that is given.
    """
    log_CL = np.log(ema_CL, dtype=np.float64)
    num_curves, length = ema_CL.shape
    end_C = np.full(num_curves, length) if length_C is None else length_C
    point_L = np.arange(length)
    seen_CL = np.broadcast_to(np.log(point_L + 1.0), log_CL.shape)
    left_CL = np.log(np.maximum(end_C[:, None] - point_L, 1))
    trends = [log_CL - log_CL[:, np.maximum(point_L - lag, 0)] for lag in TREND_LAGS]
    above_CL = log_CL - np.minimum.accumulate(log_CL, axis=1)
    return np.stack([log_CL - log_CL[:, :1], above_CL, *trends, seen_CL, left_CL], axis=2)


NUM_FEATURES = 4 + len(TREND_LAGS)


class FlowNetwork(nn.Module):
    """A causal GRU over the points, and a velocity network over the standardised future bins.

    Buffers hold the standardisation: of the features (D) and of the ways gone in the bins (H).
    """

    feature_mean_D: Tensor
    feature_scale_D: Tensor
    way_mean_H: Tensor
    way_scale_H: Tensor
    frequency_F: Tensor

    def __init__(self, shape: FlowShape) -> None:
        super().__init__()
        width, encoding = shape.velocity_width, shape.encoder_width + NUM_FEATURES
        self.encoder = nn.GRU(NUM_FEATURES, shape.encoder_width, batch_first=True)
        self.context = nn.Sequential(nn.Linear(encoding, width), nn.SiLU(), nn.Linear(width, width))
        self.tells_target = shape.tell_target
        self.question = nn.Linear(NUM_QUESTIONS, width)
        self.time = nn.Linear(2 * TIME_FREQUENCIES, width)
        self.bins = nn.Linear(shape.horizon_bins, width)
        self.hidden = nn.Linear(width, width)
        self.endpoint = nn.Linear(width, shape.horizon_bins)
        for name, size in (("feature", NUM_FEATURES), ("way", shape.horizon_bins)):
            axis = "D" if name == "feature" else "H"
            self.register_buffer(f"{name}_mean_{axis}", torch.zeros(size))
            self.register_buffer(f"{name}_scale_{axis}", torch.ones(size))
        frequency_F = torch.exp(torch.linspace(0, math.log(50.0), TIME_FREQUENCIES))
        self.register_buffer("frequency_F", frequency_F, persistent=False)

    def encode(self, feature_CLD: Tensor) -> Tensor:
        """Encode every prefix of curves in one causal pass: (C, L, E); entry n - 1 knows n points."""
        feature_CLD = (feature_CLD - self.feature_mean_D) / self.feature_scale_D
        return torch.cat([self.encoder(feature_CLD)[0], feature_CLD], dim=2)

    def condition(self, encoding_E: Tensor, question_Q: Tensor) -> Tensor:
        """What the flow is conditioned on, (..., W): the encoding of a prefix and what is asked of it."""
        told_Q = question_Q if self.tells_target else torch.zeros_like(question_Q)
        return self.context(encoding_E) + self.question(told_Q)

    def step(self, z_H: Tensor, time_1: Tensor, context_W: Tensor) -> Tensor:
        """The velocity v(z, u, c) of leading axes that broadcast: z (..., H), u (..., 1), c (..., W).

        The network guesses where the flow ends, and v = (guess - z) / (1 - u): the last Euler step lands
        on a guess, so a sampled future keeps none of the starting noise of its bins.
        """
        angle_F = time_1 * self.frequency_F
        time_W = self.time(torch.cat([angle_F.sin(), angle_F.cos()], dim=-1))
        first_W = nn.functional.silu(self.bins(z_H) + context_W + time_W)
        second_W = first_W + nn.functional.silu(self.hidden(first_W))
        return (self.endpoint(second_W) - z_H) / (1 - time_1)


class FlowPredictor(PrefixPredictor):
    """Samples N futures of H bins by Euler steps of the learned flow, and reads off the crossings.

    Inference runs in float64 from a fixed bank of starting noise, so that a prefix gets the same
    forecast alone, in any batch, and in a `ForecastTable`.
    """

    name = "fm"

    def __init__(
        self, shape: FlowShape, network: FlowNetwork, noise_NH: np.ndarray, spread: float = 1.0
    ) -> None:
        self.shape = shape
        self.noise_NH = noise_NH
        self.edge_E = bin_edges(shape.horizon_bins, shape.last_bin_ratio)
        self.spread = spread  # of the samples, see `targets.widened`
        self._network = network.double().eval()

    @property
    def num_samples(self) -> int:
        """Samples N of one forecast."""
        return self.shape.num_samples

    def resampled(self, shape: FlowShape, seed: int) -> FlowPredictor:
        """The same weights under another sampler: samples, Euler steps and warm-up of `shape`."""
        noise_NH = starting_noise(shape.num_samples, shape.horizon_bins, seed)
        return FlowPredictor(shape, self._network, noise_NH, self.spread)

    def with_spread(self, spread: float) -> FlowPredictor:
        """The same predictor with samples further from their median, or nearer to it."""
        return FlowPredictor(self.shape, self._network, self.noise_NH, spread)

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        digest = hashlib.sha256(json.dumps([asdict(self.shape), self.spread], sort_keys=True).encode())
        for name, tensor in sorted(self._tensors().items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
        return digest.hexdigest()[:16]

    @property
    def warmup_points(self) -> int:
        """Under so many points the answer is the remaining cap."""
        return self.shape.warmup_points

    def steps(
        self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray
    ) -> np.ndarray:
        """Sample futures and read off the crossings, encoding each curve once; no thought for met targets."""
        steps_BGN = np.zeros((*target_BG.shape, self.num_samples), np.uint16)
        lowest_B = np.minimum.accumulate(ema_CL, axis=1)[curve_B, num_seen_B - 1].astype(np.float64)
        encoding_BE = self._encode(ema_CL, curve_B, num_seen_B)
        question_BGQ = torch.from_numpy(target_questions(ema_CL[curve_B, 0], lowest_B, target_BG))
        all_rows, all_levels = np.nonzero(target_BG < lowest_B[:, None])
        for first in range(0, len(all_rows), FORECASTS_PER_PASS):
            part = slice(first, first + FORECASTS_PER_PASS)
            row_X, level_X = all_rows[part], all_levels[part]
            means_XNH = self._sample(encoding_BE[row_X], question_BGQ[row_X, level_X], lowest_B[row_X])
            horizon_X, target_X1 = ema_CL.shape[1] - num_seen_B[row_X], target_BG[row_X, level_X, None]
            found_X1N = first_crossing_steps(means_XNH, lowest_B[row_X], horizon_X, target_X1, self.edge_E)
            steps_BGN[row_X, level_X] = widened(found_X1N, self.spread, horizon_X)[:, 0]
        return steps_BGN

    def futures(
        self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray, target_B: np.ndarray
    ) -> np.ndarray:
        """Sampled futures of chosen prefixes (see `predict_prefixes`) with a target each, for pictures.

        Returns:
            Mean lowest losses so far of H bins that share the remaining L - n steps, float64 (B, N, H).
        """
        lowest_B = np.minimum.accumulate(ema_CL, axis=1)[curve_B, num_seen_B - 1].astype(np.float64)
        question_BGQ = torch.from_numpy(target_questions(ema_CL[curve_B, 0], lowest_B, target_B[:, None]))
        return self._sample(self._encode(ema_CL, curve_B, num_seen_B), question_BGQ[:, 0], lowest_B)

    def _encode(self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray) -> Tensor:
        """Encode prefixes, float64 (B, E), from one pass over each curve, as far as anyone has seen."""
        # The features need the cap L, the encoder only the points that someone has seen.
        feature_CLD = prefix_features(ema_CL)[:, : num_seen_B.max(initial=1)]
        with torch.inference_mode():
            encoding_CLE = self._network.encode(torch.from_numpy(feature_CLD))
            return encoding_CLE[torch.from_numpy(curve_B), torch.from_numpy(num_seen_B - 1)]

    def _sample(self, encoding_XE: Tensor, question_XQ: Tensor, lowest_X: np.ndarray) -> np.ndarray:
        """Sample the mean lowest losses of the future bins: float64 (X, N, H)."""
        network, num_steps = self._network, self.shape.euler_steps
        with torch.inference_mode():
            context_X1W = network.condition(encoding_XE, question_XQ)[:, None]
            z_XNH = torch.from_numpy(self.noise_NH)[None]  # the first step is one for all in its first layer
            for step in range(num_steps):
                time_1 = torch.full((1,), step / num_steps, dtype=torch.float64)
                z_XNH = z_XNH + network.step(z_XNH, time_1, context_X1W) / num_steps
            way_XNH = (z_XNH * network.way_scale_H + network.way_mean_H).numpy()
        unit_X1 = way_unit(question_XQ.numpy(), self.shape.tell_target)
        return losses_on_the_way(way_XNH, lowest_X[:, None, None], unit_X1[:, None])

    def _tensors(self) -> dict[str, Tensor]:
        state = {name: tensor.float().contiguous() for name, tensor in self._network.state_dict().items()}
        return {**state, "noise_NH": torch.from_numpy(self.noise_NH)}

    def save(self, directory: Path, **facts: Any) -> None:
        """Write weights.safetensors and predictor.json (with `facts` on the training) to `directory`."""
        save_weights(directory, self._tensors(), shape=asdict(self.shape), spread=self.spread, **facts)

    @classmethod
    def load(cls, directory: Path) -> FlowPredictor:
        """Read a saved predictor.

        Raises:
            UserError: a file is missing or damaged.
        """

        def build(facts: dict[str, Any], tensors: dict[str, Tensor]) -> FlowPredictor:
            shape = FlowShape(**facts["shape"])
            noise_NH = tensors.pop("noise_NH").numpy()
            network = FlowNetwork(shape)
            network.load_state_dict(tensors)
            return cls(shape, network, noise_NH, float(facts["spread"]))

        return load_weights(directory, build)


def starting_noise(num_samples: int, num_bins: int, seed: int) -> np.ndarray:
    """The fixed bank of starting noise, float64 (N, H).

    Normal, but with the mean over bins, which moves a whole future up or down, at the quantiles
    (k + 1/2) / N: eight free draws would be off-centre, the same way for every prefix.
    """
    noise_NH = generator(seed, "predictor", "noise").standard_normal((num_samples, num_bins))
    level_N = ndtri((np.arange(num_samples) + 0.5) / num_samples) / math.sqrt(num_bins)
    return noise_NH - noise_NH.mean(1, keepdims=True) + level_N[:, None]
