"""Build the shipped Fashion-MNIST subset from the original IDX files.

    dpkg-deb -x dataset-fashion-mnist_*.deb DIR     # Debian's package; or fetch the four files upstream
    python -m mara_ray.curves.datasets.build_fashion_mnist DIR/usr/share/datasets/fashion-mnist

The subset is the first 1,000 training images of each class, in their original order, average-pooled
from 28x28 to 14x14. The same input gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from pathlib import Path

import numpy as np

from mara_ray.curves.datasets.image import ARCHIVE, NUM_CLASSES

IMAGES_PER_CLASS = 1000


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of bytes (the format is that of MNIST), uint8."""
    content = gzip.decompress(path.read_bytes())
    num_axes = content[3]
    shape = [int.from_bytes(content[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(num_axes)]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes).reshape(shape)


def build(source: Path, archive: Path) -> None:
    """Write `archive` (.npz with `images` uint8 (10000, 14, 14), `labels` uint8 (10000,))."""
    images = read_idx(source / "train-images-idx3-ubyte.gz")
    labels = read_idx(source / "train-labels-idx1-ubyte.gz")
    chosen = np.sort(
        np.concatenate([np.flatnonzero(labels == label)[:IMAGES_PER_CLASS] for label in range(NUM_CLASSES)])
    )
    pooled = images[chosen].reshape(-1, 14, 2, 14, 2).astype(np.float64).mean(axis=(2, 4))
    write_npz(archive, images=np.rint(pooled).astype(np.uint8), labels=labels[chosen])


def write_npz(archive: Path, **arrays: np.ndarray) -> None:
    """As np.savez_compressed, but with a fixed time stamp, so that the bytes do not change."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.save(stream, array)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), stream.getvalue(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    build(Path(sys.argv[1]), ARCHIVE)
