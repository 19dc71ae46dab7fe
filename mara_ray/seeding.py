"""One tree of random seeds: run > stage > episode > task.

Every random number of a run descends from the run's seed and a path of names, so that no stream
depends on how many workers there are or on the order in which they finish.
"""

from __future__ import annotations

import hashlib

import numpy as np


def seed_sequence(seed: int, *path: str | int) -> np.random.SeedSequence:
    """The seed sequence at `path` below the root `seed`, e.g. `(0, "curves", "img_mlp", 12)`."""
    words = tuple(
        int.from_bytes(hashlib.blake2b(str(step).encode(), digest_size=4).digest(), "little") for step in path
    )
    return np.random.SeedSequence(entropy=seed, spawn_key=words)


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """A NumPy generator for the stream at `path`."""
    return np.random.default_rng(seed_sequence(seed, *path))


def seed_integer(seed: int, *path: str | int) -> int:
    """A non-negative 31-bit integer seed for the stream at `path` (for torch, Ray and friends)."""
    return int(seed_sequence(seed, *path).generate_state(1, np.uint32)[0] >> 1)
