"""The IMDB reviews in full (Maas et al. 2011), from the folder `aclImdb` as its archive unpacks it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mara_ray.curves.datasets.examples import Examples
from mara_ray.curves.datasets.text import examples_of, number_words, split_words
from mara_ray.errors import UserError

FOLDER = "aclImdb"
PARTS = ("neg", "pos")  # the label of a review is its place here
MAX_WORDS = 256  # of a review; the rest is cut off
MAX_VOCABULARY = 20000
ADDRESS = "https://ai.stanford.edu/~amaas/data/sentiment"


@cache
def load_reviews(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The first words of every training review, int32 (N, 256), and whether it is favourable, int64 (N,).

    Raises:
        UserError: files are missing or damaged.
    """
    if reason := missing(folder):
        raise UserError(f"text: {reason}")
    reviews, labels = [], []
    for label, part in enumerate(PARTS):
        for path in sorted((folder / FOLDER / "train" / part).glob("*.txt")):
            try:
                reviews.append(split_words(path.read_text(encoding="utf-8"), MAX_WORDS))
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(
                    f"text: {path} is damaged ({error}); unpack it again from {ADDRESS}"
                ) from error
            labels.append(label)
    return number_words(reviews, MAX_WORDS, MAX_VOCABULARY), np.array(labels, np.int64)


def missing(folder: Path) -> str | None:
    """What to do about missing data, if they are."""
    for part in PARTS:
        place = folder / FOLDER / "train" / part
        if not any(place.glob("*.txt")):
            return f"{place} holds no review; unpack aclImdb_v1.tar.gz ({ADDRESS}) in {folder}"
    return None


def draw_reviews(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """A random data set; arguments as of `mara_ray.curves.datasets.text.draw_reviews`."""
    return examples_of(*load_reviews(folder), hyperparameters, rng)
