"""CIFAR-10 in full, from the files of its Python version as torchvision unpacks them.

Axis letters: B images of a mini-batch, N images of a data set, C channels, H height, W width.
"""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mara_ray.curves.datasets.examples import Examples, mislabel
from mara_ray.errors import UserError

FOLDER = "cifar-10-batches-py"
FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
NUM_CLASSES = 10
SHAPE = (3, 32, 32)
MEAN, SPREAD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the channels, over the training images
SHIFT_PIXELS = 4
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar.html"


class _ArraysOnly(pickle.Unpickler):
    """Reads the pickles of CIFAR, and refuses to make anything but arrays."""

    def find_class(self, module: str, name: str) -> Any:
        arrays = module.startswith("numpy") and name in ("_reconstruct", "ndarray", "dtype", "_frombuffer")
        if arrays or (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for Python 2
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong in a CIFAR file")


@cache
def load_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All training images, uint8 (N, 3, 32, 32), and their labels, int64 (N,).

    Raises:
        UserError: files are missing or damaged.
    """
    if reason := missing(folder):
        raise UserError(f"images: {reason}")
    images, labels = [], []
    for name in FILES:
        path = folder / FOLDER / name
        try:
            with open(path, "rb") as file:
                batch = _ArraysOnly(file, encoding="bytes").load()
            images.append(np.asarray(batch[b"data"], np.uint8).reshape(-1, *SHAPE))
            labels.append(np.asarray(batch[b"labels"], np.int64))
        except (OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
            raise UserError(f"images: {path} is damaged ({error}); unpack it again from {ADDRESS}") from error
    return np.concatenate(images), np.concatenate(labels)


def missing(folder: Path) -> str | None:
    """What to do about missing data, if they are."""
    for name in FILES:
        if not (folder / FOLDER / name).is_file():
            return f"{folder / FOLDER / name} is missing; unpack CIFAR-10 for Python ({ADDRESS}) in {folder}"
    return None


def draw_images(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """A random data set: some images, some labels wrong.

    Args:
        hyperparameters: number of `examples` and `label_noise`: share of the labels replaced.
        rng: the stream drawn from.
        folder: where `cifar-10-batches-py` lies.
    """
    images, labels = load_images(folder)
    rows = rng.permutation(len(labels))[: hyperparameters["examples"]]
    labels_N = mislabel(labels[rows], NUM_CLASSES, hyperparameters["label_noise"], rng)
    return Examples(
        torch.from_numpy(images[rows]),
        torch.from_numpy(labels_N),
        input_shape=SHAPE,
        num_outputs=NUM_CLASSES,
        prepare=shift_and_flip,
    )


def shift_and_flip(images_BCHW: torch.Tensor) -> torch.Tensor:
    """Standardise images; shift all of a mini-batch by up to four pixels, and flip each or not."""
    device = images_BCHW.device
    mean_C11 = torch.tensor(MEAN, device=device).view(-1, 1, 1)
    spread_C11 = torch.tensor(SPREAD, device=device).view(-1, 1, 1)
    scaled_BCHW = (images_BCHW.float() / 255 - mean_C11) / spread_C11
    down, right = torch.randint(-SHIFT_PIXELS, SHIFT_PIXELS + 1, (2,)).tolist()
    shifted_BCHW = torch.roll(scaled_BCHW, (down, right), dims=(2, 3))
    flipped_B111 = (torch.rand(len(images_BCHW)) < 0.5).to(device).view(-1, 1, 1, 1)
    return torch.where(flipped_B111, shifted_BCHW.flip(3), shifted_BCHW)
