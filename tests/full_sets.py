"""Tiny data sets in the formats of the real ones, written for the tests."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from scipy.io import wavfile


def write_cifar(folder: Path, images_per_file: int = 24) -> None:
    """`cifar-10-batches-py` as torchvision unpacks it: pickled dictionaries with bytes for keys."""
    rng = np.random.default_rng(0)
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    for number in range(1, 6):
        labels = rng.integers(10, size=images_per_file)
        pixels = (
            rng.integers(0, 60, (images_per_file, 3072)) + 18 * labels[:, None]
        )  # learnable: by brightness
        content = {
            b"batch_label": b"training batch",
            b"labels": labels.tolist(),
            b"data": pixels.astype(np.uint8),
            b"filenames": [b"image.png"] * images_per_file,
        }
        (batches / f"data_batch_{number}").write_bytes(pickle.dumps(content, protocol=2))


def write_imdb(folder: Path, reviews_per_part: int = 80) -> None:
    """`aclImdb/train/{neg,pos}/ID_RATING.txt`."""
    rng = np.random.default_rng(0)
    for part, rating, words in (("neg", 2, ("dull", "awful", "bad")), ("pos", 9, ("fine", "lovely", "good"))):
        place = folder / "aclImdb" / "train" / part
        place.mkdir(parents=True)
        for number in range(reviews_per_part):
            chosen = rng.choice([*words, "the", "film", "was", "and"], size=70)
            (place / f"{number}_{rating}.txt").write_text("A film.<br /><br />" + " ".join(chosen))


def write_yesno(folder: Path, recordings: int = 30) -> None:
    """`waves_yesno/0_1_..._0.wav`: eight words each, 16-bit mono at 8 kHz."""
    rng = np.random.default_rng(0)
    place = folder / "waves_yesno"
    place.mkdir(parents=True)
    second = np.arange(2400) / 8000
    for number in range(recordings):
        words = [int(bit) for bit in f"{(number * 37) % 256:08b}"]
        tones = [np.sin(2 * np.pi * (1500 if word else 400) * second) for word in words]
        samples = np.concatenate([*tones, np.zeros(rng.integers(100, 3000))])
        samples = 12000 * samples + rng.normal(0, 30, len(samples))
        wavfile.write(place / f"{'_'.join(map(str, words))}.wav", 8000, samples.astype(np.int16))
