"""The quantile predictor: the flow's encoder, and a head that answers with the steps to a target.

Axis letters: B prefixes, C curves, L points, P prefixes of a curve, N quantiles, D features, E encoding,
Q what is told of a target, W hidden width, G target levels.
A rival of the flow: it models no future losses, only quantiles of the remaining steps, as a share of the
remaining cap L - n, by the pinball loss. Everything is scale-free: only ratios of losses go in.
"""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mara_ray.artifacts import hash_of
from mara_ray.config import PredictorConfig
from mara_ray.predictor.fitting import AVERAGE_DECAY, GRADIENT_CLIP, PREFIXES_PER_CURVE, validation_error
from mara_ray.predictor.flow import NUM_FEATURES, prefix_features
from mara_ray.predictor.prefixes import PrefixPredictor
from mara_ray.predictor.questions import NUM_QUESTIONS, draw_targets, target_questions
from mara_ray.predictor.weights import load_weights, save_weights
from mara_ray.progress import Report
from mara_ray.seeding import generator, seed_integer

TARGETS_PER_PREFIX = 4
PREFIXES_PER_PASS = 256


@dataclass(frozen=True)
class QuantileShape:
    """The sizes that the weights depend on, and the warm-up."""

    encoder_width: int
    hidden_width: int
    num_samples: int
    warmup_points: int


class QuantileNetwork(nn.Module):
    """A causal GRU over the standardised features of the points, and a head over it and the questions."""

    feature_mean_D: Tensor
    feature_scale_D: Tensor

    def __init__(self, shape: QuantileShape) -> None:
        super().__init__()
        width, encoding = shape.hidden_width, shape.encoder_width + NUM_FEATURES
        self.encoder = nn.GRU(NUM_FEATURES, shape.encoder_width, batch_first=True)
        self.context = nn.Sequential(nn.Linear(encoding, width), nn.SiLU(), nn.Linear(width, width))
        self.question = nn.Linear(NUM_QUESTIONS, width)
        self.hidden = nn.Linear(width, width)
        self.quantiles = nn.Linear(width, shape.num_samples)
        self.register_buffer("feature_mean_D", torch.zeros(NUM_FEATURES))
        self.register_buffer("feature_scale_D", torch.ones(NUM_FEATURES))

    def encode(self, feature_CLD: Tensor) -> Tensor:
        """Encode every prefix of curves in one causal pass: (C, L, E); entry n - 1 knows n points."""
        feature_CLD = (feature_CLD - self.feature_mean_D) / self.feature_scale_D
        return torch.cat([self.encoder(feature_CLD)[0], feature_CLD], dim=2)

    def shares(self, encoding_BE: Tensor, question_BGQ: Tensor) -> Tensor:
        """Quantiles of the remaining share of the cap, in 0..1 and sorted: (B, G, N)."""
        first_BGW = nn.functional.silu(self.question(question_BGQ) + self.context(encoding_BE)[:, None])
        second_BGW = first_BGW + nn.functional.silu(self.hidden(first_BGW))
        lowest_BG1, rise_BGN = self.quantiles(second_BGW).tensor_split([1], dim=2)
        logit_BGN = torch.cat([lowest_BG1, nn.functional.softplus(rise_BGN)], dim=2).cumsum(2)
        return logit_BGN.sigmoid()


class QuantilePredictor(PrefixPredictor):
    """Reads N quantiles, at the levels (k + 1/2) / N, of the remaining steps off the network, in float64."""

    name = "quantile"

    def __init__(self, shape: QuantileShape, network: QuantileNetwork) -> None:
        self.shape = shape
        self._network = network.double().eval()

    @property
    def num_samples(self) -> int:
        """Quantiles N of one forecast."""
        return self.shape.num_samples

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        weights = {name: tensor.numpy().tobytes().hex() for name, tensor in self._tensors().items()}
        return hash_of(self.name, asdict(self.shape), weights)

    @property
    def warmup_points(self) -> int:
        """Under so many points the answer is the remaining cap."""
        return self.shape.warmup_points

    def steps(
        self, ema_CL: np.ndarray, curve_B: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray
    ) -> np.ndarray:
        """Read the shares of the remaining cap off the network, encoding each curve once."""
        lowest_CL = np.minimum.accumulate(ema_CL, axis=1)
        cap_B11 = (ema_CL.shape[1] - num_seen_B)[:, None, None]
        steps_BGN = np.empty((*target_BG.shape, self.num_samples), np.uint16)
        with torch.inference_mode():
            feature_CLD = prefix_features(ema_CL)[:, : num_seen_B.max()]
            encoding_CLE = self._network.encode(torch.from_numpy(feature_CLD))
            for first in range(0, len(curve_B), PREFIXES_PER_PASS):
                part = slice(first, first + PREFIXES_PER_PASS)
                curve_P, last_P = curve_B[part], num_seen_B[part] - 1
                question_PGQ = target_questions(
                    ema_CL[curve_P, 0], lowest_CL[curve_P, last_P], target_BG[part]
                )
                encoding_PE = encoding_CLE[torch.from_numpy(curve_P), torch.from_numpy(last_P)]
                share_PGN = self._network.shares(encoding_PE, torch.from_numpy(question_PGQ)).numpy()
                steps_BGN[part] = np.clip(np.rint(share_PGN * cap_B11[part]), 1, cap_B11[part])
        return steps_BGN

    def _tensors(self) -> dict[str, Tensor]:
        return {name: tensor.float().contiguous() for name, tensor in self._network.state_dict().items()}

    def save(self, directory: Path, **facts: Any) -> None:
        """Write weights.safetensors and predictor.json (with `facts` on the training) to `directory`."""
        save_weights(directory, self._tensors(), shape=asdict(self.shape), **facts)

    @classmethod
    def load(cls, directory: Path) -> QuantilePredictor:
        """Read a saved predictor.

        Raises:
            UserError: a file is missing or damaged.
        """

        def build(facts: dict[str, Any], tensors: dict[str, Tensor]) -> QuantilePredictor:
            shape = QuantileShape(**facts["shape"])
            network = QuantileNetwork(shape)
            network.load_state_dict(tensors)
            return cls(shape, network)

        return load_weights(directory, build)


def fit_quantiles(
    config: PredictorConfig, train_CL: np.ndarray, validation_CL: np.ndarray, seed: int, progress: Report
) -> QuantilePredictor:
    """Train on curves, keep the averaged weights of the epoch of least `validation_error`; one thread."""
    sizes = config.encoder_width, config.velocity_width, config.num_samples
    shape = QuantileShape(*sizes, config.warmup_points)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums on every machine
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_integer(seed, "quantile", "weights"))
        network = QuantileNetwork(shape)
    feature_CLD = torch.from_numpy(prefix_features(train_CL)).float()
    network.feature_mean_D.copy_(feature_CLD.mean((0, 1)))
    network.feature_scale_D.copy_(feature_CLD.std((0, 1)) + 1e-6)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    level_N = (torch.arange(config.num_samples) + 0.5) / config.num_samples
    average, best_score = copy.deepcopy(network), math.inf
    num_batches = math.ceil(len(train_CL) / config.batch_curves)
    for epoch in range(config.epochs):
        rng = generator(seed, "quantile", "epoch", epoch)
        for number, curves in enumerate(np.array_split(rng.permutation(len(train_CL)), num_batches)):
            done = (epoch + number / num_batches) / config.epochs
            rate = min(1.0, 0.05 + done / 0.05) * 0.5 * (1 + math.cos(math.pi * done))
            optimizer.param_groups[0]["lr"] = config.learning_rate * rate
            last_CP, question_XGQ, share_XG, weight_X = draw_cases(train_CL[curves], config, rng)
            encoding_CLE = network.encode(feature_CLD[torch.from_numpy(curves)])
            encoding_CPE = encoding_CLE[torch.arange(len(curves))[:, None], last_CP]
            error_XGN = share_XG[..., None] - network.shares(encoding_CPE.flatten(0, 1), question_XGQ)
            pinball_X = torch.maximum(level_N * error_XGN, (level_N - 1) * error_XGN).mean((1, 2))
            optimizer.zero_grad()
            ((weight_X * pinball_X).sum() / weight_X.sum()).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_CLIP)
            optimizer.step()
            step = epoch * num_batches + number
            decay = min(AVERAGE_DECAY, (1 + step) / (10 + step))
            for mean, value in zip(average.parameters(), network.parameters(), strict=True):
                mean.data.lerp_(value.data, 1 - decay)
        candidate = QuantilePredictor(shape, copy.deepcopy(average))
        score = validation_error(candidate, validation_CL, config.target_fractions)
        if epoch == 0 or score < best_score:
            best, best_score = candidate, score
        progress(epoch + 1, config.epochs, "epochs")
    torch.set_num_threads(threads)
    return best


def draw_cases(
    ema_CL: np.ndarray, config: PredictorConfig, rng: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random prefixes of curves and targets they have not met; X runs over all prefixes of all curves.

    Returns:
        Index of the last point seen (C, P), questions (X, G, Q), share of the remaining cap that is
        needed (X, G), and the weights of the prefixes (X,) of `draw_targets`.
    """
    num_curves, length = ema_CL.shape
    last_CP = rng.integers(config.warmup_points - 1, length - 1, (num_curves, PREFIXES_PER_CURVE))
    lowest_CL = np.minimum.accumulate(ema_CL, axis=1)
    share_CPG = rng.random((*last_CP.shape, TARGETS_PER_PREFIX))
    target_CPG, weight_CP = draw_targets(lowest_CL, last_CP + 1, share_CPG, config.target_fractions)
    # The lowest loss so far never rises: the points over a target are those before it is met.
    left_CPG = (lowest_CL[:, None, None] > target_CPG[..., None]).sum(3) - last_CP[..., None]
    lowest_X = np.take_along_axis(lowest_CL, last_CP, axis=1).ravel()
    first_X = np.repeat(ema_CL[:, 0], last_CP.shape[1])
    question_XGQ = target_questions(first_X, lowest_X, target_CPG.reshape(-1, TARGETS_PER_PREFIX))
    share_XG = np.clip(left_CPG / (length - 1 - last_CP[..., None]), 0.0, 1.0).reshape(question_XGQ.shape[:2])
    question, share, weight = (
        torch.from_numpy(array).float() for array in (question_XGQ, share_XG, weight_CP.ravel())
    )
    return torch.from_numpy(last_CP), question, share, weight
