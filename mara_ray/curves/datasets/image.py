"""Images: a Fashion-MNIST subset of 14x14 pixels that ships with the package.

Axis letters: B images of a mini-batch, N images of a data set, C channels, H height, W width.
"""

from __future__ import annotations

import zipfile
import zlib
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mara_ray.curves.datasets.examples import Examples, mislabel
from mara_ray.errors import UserError

ARCHIVE = Path(__file__).parent / "data" / "fashion_mnist_14x14.npz"
NUM_CLASSES = 10
SIDE_PIXELS = 14


@cache
def load_images() -> tuple[np.ndarray, np.ndarray]:
    """All images, float32 (10000, 1, 14, 14), standardised, and their labels, int64 (10000,).

    Raises:
        UserError: the shipped archive is missing or damaged.
    """
    try:
        with np.load(ARCHIVE) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"images: {ARCHIVE} is missing or damaged; install mara_ray again") from error
    scaled = images[:, None].astype(np.float32) / 255
    return (scaled - scaled.mean()) / scaled.std(), labels.astype(np.int64)


def missing(folder: Path) -> str | None:
    """What to do about missing data, if they are."""
    return None if ARCHIVE.is_file() else f"{ARCHIVE} is missing; install mara_ray again"


def draw_images(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """A random data set: some classes, some images of them, some labels wrong.

    Args:
        hyperparameters: `classes` drawn out of ten, `examples` wanted (all there are of the classes, if
            fewer), `label_noise`: share of the labels replaced by uniform ones, and `augmentation`.
        rng: the stream drawn from.
        folder: not looked at: these data ship with the package.
    """
    num_classes = hyperparameters["classes"]
    images, labels = load_images()
    classes = rng.permutation(NUM_CLASSES)[:num_classes]
    candidates = np.flatnonzero(np.isin(labels, classes))
    rows = rng.permutation(candidates)[: hyperparameters["examples"]]
    new_label = np.zeros(NUM_CLASSES, np.int64)
    new_label[classes] = np.arange(num_classes)
    labels_N = mislabel(new_label[labels[rows]], num_classes, hyperparameters["label_noise"], rng)
    return Examples(
        torch.from_numpy(images[rows]),
        torch.from_numpy(labels_N),
        input_shape=images.shape[1:],
        num_outputs=num_classes,
        prepare=partial(augment, kind=hyperparameters["augmentation"]),
    )


def augment(images_BCHW: torch.Tensor, kind: str) -> torch.Tensor:
    """One random augmentation for a whole mini-batch, from torch's global stream.

    Args:
        images_BCHW: the images.
        kind: "none", "shift" (by up to two pixels, wrapping) or "erase" (a square of a third of the side).
    """
    if kind == "none":
        return images_BCHW
    if kind == "shift":
        down, right = (torch.randint(-2, 3, (2,))).tolist()
        return torch.roll(images_BCHW, (down, right), dims=(2, 3))
    side = images_BCHW.shape[-1]
    square = round(0.36 * side)
    top, left = torch.randint(0, side - square + 1, (2,)).tolist()
    erased_BCHW = images_BCHW.clone()
    erased_BCHW[:, :, top : top + square, left : left + square] = 0
    return erased_BCHW
