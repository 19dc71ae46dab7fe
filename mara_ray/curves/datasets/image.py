"""Images: a Fashion-MNIST subset of 14x14 pixels that ships with the package.

Axis letters: B images of a mini-batch, N images of a data set, H height, W width.
"""

from __future__ import annotations

import zipfile
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import torch

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


def draw_images(
    num_images: int, num_classes: int, label_noise: float, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """A random data set: some classes, some images of them, some labels wrong.

    Args:
        num_images: images wanted; all there are of the classes, if fewer.
        num_classes: classes drawn, out of ten.
        label_noise: share of the labels replaced by uniform ones.
        rng: the stream drawn from.

    Returns:
        Images float32 (N, 1, 14, 14) and labels int64 (N,) in 0..num_classes - 1.
    """
    images, labels = load_images()
    classes = rng.permutation(NUM_CLASSES)[:num_classes]
    candidates = np.flatnonzero(np.isin(labels, classes))
    rows = rng.permutation(candidates)[:num_images]
    new_label = np.zeros(NUM_CLASSES, np.int64)
    new_label[classes] = np.arange(num_classes)
    labels_N = new_label[labels[rows]]
    wrong_N = rng.random(len(rows)) < label_noise
    labels_N[wrong_N] = rng.integers(num_classes, size=int(wrong_N.sum()))
    return torch.from_numpy(images[rows]), torch.from_numpy(labels_N)


def augment(images_B1HW: torch.Tensor, kind: str) -> torch.Tensor:
    """One random augmentation for a whole mini-batch, from torch's global stream.

    Args:
        images_B1HW: the images.
        kind: "none", "shift" (by up to two pixels, wrapping) or "erase" (a 5x5 square).
    """
    if kind == "none":
        return images_B1HW
    if kind == "shift":
        down, right = (torch.randint(-2, 3, (2,))).tolist()
        return torch.roll(images_B1HW, (down, right), dims=(2, 3))
    top, left = torch.randint(0, SIDE_PIXELS - 4, (2,)).tolist()
    erased_B1HW = images_B1HW.clone()
    erased_B1HW[:, :, top : top + 5, left : left + 5] = 0
    return erased_B1HW
