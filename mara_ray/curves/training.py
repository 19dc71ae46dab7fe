"""CatalogTask: a real training that runs block by block and can be put down and taken up again.

Every block draws from its own random stream, keyed by the task's seed and the block's number. So a
task's state is its model, optimiser and progress alone, and a task that was paused, moved and
resumed goes on bit for bit as if it had never stopped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mara_ray.curves.catalog import configuration_named
from mara_ray.curves.configuration import Hyperparameters
from mara_ray.curves.problem import Problem
from mara_ray.learning_task import LearningTask
from mara_ray.seeding import generator, seed_integer

GRADIENT_CLIP = 1.0
MOMENTUM = 0.9
COSINE_END = 0.02  # share of the learning rate left at the end of the cosine schedule
STEP_AT, STEP_FACTOR = 0.6, 0.1  # the step schedule


class CatalogTask(LearningTask):
    """One training of the catalog in progress; `make_task` builds it.

    Attributes:
        blocks_done: blocks of mini-batches trained so far.
        initial_loss: the loss of the untrained model: point 0 of the curve.
    """

    def __init__(
        self,
        problem: Problem,
        weights: nn.Parameter,
        optimiser: torch.optim.Optimizer,
        hyperparameters: Hyperparameters,
        seed: int,
        batches_per_point: int,
        device: str,
    ) -> None:
        self.problem = problem
        self.weights = weights
        self.optimiser = optimiser
        self.hyperparameters = hyperparameters
        self.seed = seed
        self.batches_per_point = batches_per_point
        self.device = device
        self.blocks_done = 0
        with _random_stream(seed, 0, device) as rng:
            self.initial_loss = problem.untrained_reading(rng, batches_per_point)

    def run_block(self) -> float:
        """Train one block of mini-batches; returns its mean loss, the next point of the curve."""
        self.blocks_done += 1
        readings = []
        with _random_stream(self.seed, self.blocks_done, self.device) as rng:
            for batch in range(self.batches_per_point):
                self._set_learning_rate((self.blocks_done - 1) * self.batches_per_point + batch)
                for loss in self.problem.losses(rng):
                    self._descend(loss)
                readings.append(self.problem.reading())
        return float(np.mean(readings))

    def state_dict(self) -> dict[str, Any]:
        """All that changes while the task runs, as copies."""
        return copy.deepcopy(
            {
                "blocks_done": self.blocks_done,
                "model": self.problem.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "problem": self.problem.state_dict(),
            }
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a task again; it must have been made with the same arguments."""
        state = copy.deepcopy(state)
        self.blocks_done = state["blocks_done"]
        self.problem.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.problem.load_state_dict(state["problem"])

    def _descend(self, loss: torch.Tensor) -> None:
        gradient = self.weights.grad
        assert gradient is not None
        gradient.zero_()
        loss.backward()
        gradient.mul_((GRADIENT_CLIP / (gradient.norm() + 1e-6)).clamp_(max=1.0))
        self.optimiser.step()

    def _set_learning_rate(self, batch: int) -> None:
        share = learning_rate_share(
            self.hyperparameters["schedule"],
            batch,
            self.hyperparameters["schedule_batches"],
            self.hyperparameters["warmup_batches"],
        )
        for group in self.optimiser.param_groups:
            group["lr"] = self.hyperparameters["learning_rate"] * share


def make_task(
    configuration: str,
    hyperparameters: Hyperparameters,
    seed: int,
    batches_per_point: int,
    device: str = "cpu",
    data_folder: Path = Path("data"),
) -> CatalogTask:
    """Build a task; the same arguments give the same curve, bit for bit, on the same kind of machine.

    Args:
        configuration: a name in `CONFIGURATIONS`.
        hyperparameters: as its `draw` gives them, and `schedule_batches`, the mini-batches over
            which the learning rate follows its schedule.
        seed: seed of the data, the first weights and all mini-batches.
        batches_per_point: mini-batches of one block.
        device: a torch device.
        data_folder: where the full-size data sets lie.

    Raises:
        UserError: the configuration is unknown, or its data are missing.
    """
    make_problem = configuration_named(configuration).problem
    with _random_stream(seed, "build", device) as rng:
        problem = make_problem(hyperparameters, rng, device, data_folder)
    weights = flatten_weights(problem.model)
    optimiser = _make_optimiser(weights, hyperparameters)
    return CatalogTask(problem, weights, optimiser, hyperparameters, seed, batches_per_point, device)


def flatten_weights(model: nn.Module) -> nn.Parameter:
    """Lay all weights of a model, and all their gradients, in one tensor of one axis each.

    The model's parameters become views of it. Zeroing, clipping and the optimiser's step then take one
    operation where there would be one for every layer; for small networks that is half of the time.
    """
    parameters = list(model.parameters())
    weights = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    weights.grad = torch.zeros_like(weights)
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = weights.data[start:end].view_as(parameter)
        parameter.grad = weights.grad[start:end].view_as(parameter)
        start = end
    return weights


def learning_rate_share(schedule: str, batch: int, schedule_batches: int, warmup_batches: int) -> float:
    """The share of the full learning rate in force at a mini-batch, between 0 and 1.

    Args:
        schedule: "constant", "cosine" (to 2 %), "step" (a tenth after 60 %) or "linear" (to 0, and
            there from 95 % on).
        batch: number of the mini-batch, from 0.
        schedule_batches: mini-batches in which the schedule runs off.
        warmup_batches: mini-batches of linear warm-up at the start.
    """
    done = min(batch / schedule_batches, 1.0)
    share = {
        "constant": 1.0,
        "cosine": COSINE_END + (1 - COSINE_END) * (1 + math.cos(math.pi * done)) / 2,
        "step": 1.0 if done < STEP_AT else STEP_FACTOR,
        "linear": max(1 - done, 0.05),
    }[schedule]
    return share * min((batch + 1) / (warmup_batches + 1), 1.0)


def _make_optimiser(weights: nn.Parameter, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    common = {"lr": hyperparameters["learning_rate"], "weight_decay": hyperparameters["weight_decay"]}
    parameters = [weights]
    match hyperparameters["optimiser"]:
        case "sgd":
            return torch.optim.SGD(parameters, momentum=MOMENTUM, fused=True, **common)
        case "adam":
            return torch.optim.Adam(parameters, fused=True, **common)
        case "adamw":
            return torch.optim.AdamW(parameters, fused=True, **common)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, **common)
        case name:
            raise ValueError(f"unknown optimiser {name!r}")


@contextmanager
def _random_stream(seed: int, step: int | str, device: str) -> Iterator[np.random.Generator]:
    """Key torch's global stream, and a NumPy one, to a step of the task; the caller's is kept."""
    # Stalled weights leave denormal moments behind, on which a CPU is many times slower.
    torch.set_flush_denormal(True)
    with torch.random.fork_rng(devices=[device] if device != "cpu" else []):
        # Not torch.manual_seed: without CUDA it queues a seeding, stack trace and all, at every call.
        torch.default_generator.manual_seed(seed_integer(seed, "torch", step))
        if device != "cpu":
            torch.cuda.manual_seed(seed_integer(seed, "cuda", step))
        yield generator(seed, "numpy", step)
