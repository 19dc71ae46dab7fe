"""What a supervised learning task is given: examples, and how mini-batches are disturbed and scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional


@dataclass(frozen=True)
class Examples:
    """A data set drawn for one task.

    Attributes:
        inputs: (N, ...), as compact as they are kept; `prepare` makes them what the model takes.
        labels: (N,) or (N, outputs), as `loss` takes them.
        input_shape: of one prepared example.
        num_outputs: outputs of the model.
        prepare: inputs of a mini-batch -> prepared and augmented, from torch's global stream.
        loss: (outputs, labels) of a mini-batch -> mean loss.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    input_shape: tuple[int, ...]
    num_outputs: int
    prepare: Callable[[torch.Tensor], torch.Tensor]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy


def mislabel(labels_N: np.ndarray, num_classes: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Labels of which a share is replaced by uniform ones; the shape may be any."""
    wrong = rng.random(labels_N.shape) < share
    noisy = labels_N.copy()
    noisy[wrong] = rng.integers(num_classes, size=int(wrong.sum()))
    return noisy
