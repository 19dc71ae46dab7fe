"""LearningTask: a real training that runs block by block and can be put down and taken up again.

Every block draws from its own random stream, keyed by the task's seed and the block's number. So a
task's state is its model, optimiser and progress alone, and a task that was paused, moved and
resumed goes on bit for bit as if it had never stopped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from mara_ray.curves.catalog import CONFIGURATIONS, Hyperparameters
from mara_ray.curves.reinforcement import CartPolePPO
from mara_ray.curves.supervised import Classification
from mara_ray.errors import UserError
from mara_ray.seeding import generator, seed_integer

GRADIENT_CLIP = 1.0
MOMENTUM = 0.9
COSINE_END = 0.02  # share of the learning rate left at the end of the cosine schedule
STEP_AT, STEP_FACTOR = 0.6, 0.1  # the step schedule


class Problem(Protocol):
    """What is learned: a model, the losses it descends on, and a reading of its progress."""

    @property
    def model(self) -> nn.Module:
        """The model in training."""
        ...

    def losses(self, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """The losses of one mini-batch; the task takes one optimiser step on each."""
        ...

    def reading(self) -> float:
        """The progress after the last mini-batch, as a loss."""
        ...

    def untrained_reading(self, rng: np.random.Generator, num_batches: int) -> float:
        """The reading before any learning."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What changes beyond the model."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        ...


class LearningTask:
    """One training in progress; `make_task` builds it.

    Attributes:
        blocks_done: blocks of mini-batches trained so far.
        initial_loss: the loss of the untrained model: point 0 of the curve.
    """

    def __init__(
        self,
        problem: Problem,
        optimiser: torch.optim.Optimizer,
        hyperparameters: Hyperparameters,
        seed: int,
        batches_per_point: int,
        device: str,
    ) -> None:
        self.problem = problem
        self._parameters = list(problem.model.parameters())  # walking the modules is slow
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
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, GRADIENT_CLIP)
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
) -> LearningTask:
    """Build a task; the same arguments give the same curve, bit for bit, on the same kind of machine.

    Args:
        configuration: a name in `CONFIGURATIONS`.
        hyperparameters: as its `draw` gives them, and `schedule_batches`, the mini-batches over
            which the learning rate follows its schedule.
        seed: seed of the data, the first weights and all mini-batches.
        batches_per_point: mini-batches of one block.
        device: a torch device.

    Raises:
        UserError: the configuration is unknown, or its data are missing.
    """
    if configuration not in CONFIGURATIONS:
        raise UserError(
            f"curves.configurations: {configuration!r} is unknown; use some of {', '.join(CONFIGURATIONS)}"
        )
    control = CONFIGURATIONS[configuration].modality == "control"
    with _random_stream(seed, "build", device) as rng:
        problem: Problem = (CartPolePPO if control else Classification)(hyperparameters, rng, device)
    optimiser = _make_optimiser(problem.model, hyperparameters)
    return LearningTask(problem, optimiser, hyperparameters, seed, batches_per_point, device)


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


def _make_optimiser(model: nn.Module, hyperparameters: Hyperparameters) -> torch.optim.Optimizer:
    common = {"lr": hyperparameters["learning_rate"], "weight_decay": hyperparameters["weight_decay"]}
    parameters = model.parameters()
    match hyperparameters["optimiser"]:
        case "sgd":
            return torch.optim.SGD(parameters, momentum=MOMENTUM, fused=True, **common)
        case "adam":
            return torch.optim.Adam(parameters, fused=True, **common)
        case "adamw":
            return torch.optim.AdamW(parameters, fused=True, **common)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, foreach=True, **common)
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
