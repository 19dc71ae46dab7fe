"""The data of each modality: embedded ones that ship with the package, and the full real sets on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mara_ray.curves.datasets import atari, cifar, image, imdb, speech, text, yesno

# Name -> a function of the data folder that says what to do if the data are missing.
MISSING: dict[str, Callable[[Path], str | None]] = {
    "fashion_mnist": image.missing,
    "movie_reviews": text.missing,
    "spoken_yes_no": speech.missing,
    "atari_memory": atari.missing_memory,
    "cifar10": cifar.missing,
    "imdb": imdb.missing,
    "yesno": yesno.missing,
    "atari_screen": atari.missing_machine,
}


def state_of_data(folder: Path) -> dict[str, str]:
    """Which data are there: name -> "found", or "missing: " and what to do (for `mara doctor`)."""
    reasons = {name: missing(folder) for name, missing in MISSING.items()}
    return {name: f"missing: {reason}" if reason else "found" for name, reason in reasons.items()}
