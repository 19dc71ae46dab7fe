"""The YESNO corpus (OpenSLR SLR1): 60 recordings of eight Hebrew yes/no words, from its wave files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import wavfile

from mara_ray.curves.datasets.examples import Examples
from mara_ray.curves.datasets.speech import RATE_HZ, WORDS_PER_RECORDING, examples_of, log_mel
from mara_ray.errors import UserError

FOLDER = "waves_yesno"
ADDRESS = "https://www.openslr.org/1"


@cache
def load_recordings(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Log-mel features of all recordings, float32 (N, F, 20), standardised, and the words, int64 (N, 8).

    A file's name tells its words, as in 0_0_1_0_1_1_0_1.wav; 1 is yes.

    Raises:
        UserError: files are missing or damaged.
    """
    if reason := missing(folder):
        raise UserError(f"speech: {reason}")
    features, labels = [], []
    for path in sorted((folder / FOLDER).glob("*.wav")):
        try:
            rate_hz, samples = wavfile.read(path)
            words = [int(word) for word in path.stem.split("_")]
            if rate_hz != RATE_HZ or samples.dtype != np.int16 or samples.ndim != 1:
                raise ValueError(f"not 16-bit mono at {RATE_HZ} Hz")
            if len(words) != WORDS_PER_RECORDING or not set(words) <= {0, 1}:
                raise ValueError("its name does not tell eight words")
        except Exception as error:  # damaged files make SciPy raise errors of many kinds
            raise UserError(f"speech: {path} is damaged ({error}); unpack it again from {ADDRESS}") from error
        features.append(log_mel(samples / 32768))
        labels.append(words)
    num_frames = max(map(len, features))
    silence = min(float(frames.min()) for frames in features)
    padded = [np.pad(f, ((0, num_frames - len(f)), (0, 0)), constant_values=silence) for f in features]
    frames_NFE = np.array(padded, np.float32)
    return (frames_NFE - frames_NFE.mean()) / frames_NFE.std(), np.array(labels, np.int64)


def missing(folder: Path) -> str | None:
    """What to do about missing data, if they are."""
    if any((folder / FOLDER).glob("*.wav")):
        return None
    return f"{folder / FOLDER} holds no wave file; unpack waves_yesno.tar.gz ({ADDRESS}) in {folder}"


def draw_recordings(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """A random data set; arguments as of `mara_ray.curves.datasets.speech.draw_recordings`."""
    return examples_of(*load_recordings(folder), hyperparameters, rng)
