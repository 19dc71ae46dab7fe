"""Speech: recordings of eight spoken yes/no words each, as log-mel features.

The shipped recordings are synthetic, in the format of the YESNO corpus (OpenSLR SLR1): the Hebrew words
"ken" and "lo" spoken by espeak-ng; `build_speech` made them. Axis letters: N examples of a data set, B of
a mini-batch, F frames, E mel bands, W words of a recording.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import signal
from torch.nn import functional

from mara_ray.curves.datasets.examples import Examples, mislabel
from mara_ray.errors import UserError

ARCHIVE = Path(__file__).parent / "data" / "spoken_yes_no.npz"
RATE_HZ = 8000
HOP_SAMPLES = 160  # 20 ms
WINDOW_SAMPLES = 256
MEL_BANDS = 20
WORDS_PER_RECORDING = 8
WORD_FRAMES = 32  # the longest word, in frames of 20 ms


@dataclass(frozen=True)
class Recordings:
    """Features of all recordings.

    Attributes:
        frames_NFE: float32, standardised, each the mean of two of 20 ms; silence pads the shorter ones.
        labels_NW: int64, 1 for yes.
        start_NW: int64, the frame at which each word begins.
    """

    frames_NFE: np.ndarray
    labels_NW: np.ndarray
    start_NW: np.ndarray


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Log-mel features float32 (F, 20) of samples in -1..1 at 8 kHz; a frame is 20 ms."""
    _, _, spectrum = signal.stft(
        samples, RATE_HZ, nperseg=WINDOW_SAMPLES, noverlap=WINDOW_SAMPLES - HOP_SAMPLES, padded=False
    )
    power = np.abs(spectrum.T) ** 2 @ _mel_filters().T
    return np.log(power + 1e-10).astype(np.float32)


@cache
def _mel_filters() -> np.ndarray:
    """Triangles of equal width on the mel scale (O'Shaughnessy 1987), (20, 129)."""
    highest_mel = 2595 * np.log10(1 + RATE_HZ / 2 / 700)
    edges_hz = 700 * (10 ** (np.linspace(0, highest_mel, MEL_BANDS + 2) / 2595) - 1)
    frequency_hz = np.linspace(0, RATE_HZ / 2, WINDOW_SAMPLES // 2 + 1)
    rising = (frequency_hz - edges_hz[:-2, None]) / np.diff(edges_hz)[:-1, None]
    falling = (edges_hz[2:, None] - frequency_hz) / np.diff(edges_hz)[1:, None]
    return np.maximum(0, np.minimum(rising, falling))


@cache
def load_recordings() -> Recordings:
    """The shipped recordings.

    Raises:
        UserError: the shipped archive is missing or damaged.
    """
    try:
        with np.load(ARCHIVE) as arrays:
            levels_NFE, labels_NW, start_NW = arrays["levels"], arrays["labels"], arrays["starts"]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"speech: {ARCHIVE} is missing or damaged; install mara_ray again") from error
    num_recordings, num_frames, bands = levels_NFE.shape
    pairs = levels_NFE[:, : num_frames // 2 * 2].reshape(num_recordings, -1, 2, bands)
    frames_NFE = pairs.mean(2, dtype=np.float32)
    frames_NFE = (frames_NFE - frames_NFE.mean()) / frames_NFE.std()
    return Recordings(frames_NFE, labels_NW.astype(np.int64), start_NW.astype(np.int64) // 2)


def missing(folder: Path) -> str | None:
    """What to do about missing data, if they are."""
    return None if ARCHIVE.is_file() else f"{ARCHIVE} is missing; install mara_ray again"


def draw_recordings(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """Some whole recordings, of which all eight words are to be told.

    Args:
        hyperparameters: number of `examples`, `label_noise`: share of the labels replaced by uniform ones,
            `feature_noise`: standard deviation added to the features, `time_mask_frames` hidden at most.
        rng: the stream drawn from.
        folder: not looked at: these data ship with the package.
    """
    recordings = load_recordings()
    return examples_of(recordings.frames_NFE, recordings.labels_NW, hyperparameters, rng)


def examples_of(
    frames_NFE: np.ndarray, labels_NW: np.ndarray, hyperparameters: dict[str, Any], rng: np.random.Generator
) -> Examples:
    """Draw a data set of whole recordings from all there are."""
    rows = rng.permutation(len(frames_NFE))[: hyperparameters["examples"]]
    labels = mislabel(labels_NW[rows], 2, hyperparameters["label_noise"], rng)
    return Examples(
        torch.from_numpy(frames_NFE[rows]),
        torch.from_numpy(labels.astype(np.float32)),
        input_shape=frames_NFE.shape[1:],
        num_outputs=WORDS_PER_RECORDING,
        prepare=_disturbance(hyperparameters),
        loss=functional.binary_cross_entropy_with_logits,
    )


def draw_words(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """Some single words out of all recordings; arguments as of `draw_recordings`."""
    recordings = load_recordings()
    num_words = recordings.labels_NW.size
    picked = rng.permutation(num_words)[: hyperparameters["examples"]]
    recording, word = np.divmod(picked, WORDS_PER_RECORDING)
    frame_NF = recordings.start_NW[recording, word][:, None] + np.arange(WORD_FRAMES // 2)
    frames_NFE = recordings.frames_NFE[recording[:, None], frame_NF]
    labels_N = mislabel(recordings.labels_NW[recording, word], 2, hyperparameters["label_noise"], rng)
    return Examples(
        torch.from_numpy(frames_NFE),
        torch.from_numpy(labels_N),
        input_shape=frames_NFE.shape[1:],
        num_outputs=2,
        prepare=_disturbance(hyperparameters),
    )


def _disturbance(hyperparameters: dict[str, Any]) -> partial[torch.Tensor]:
    return partial(
        disturb,
        noise=hyperparameters["feature_noise"],
        mask_frames=hyperparameters["time_mask_frames"],
    )


def disturb(frames_BFE: torch.Tensor, noise: float, mask_frames: int) -> torch.Tensor:
    """Add noise to the features, and hide up to `mask_frames` frames; from torch's global stream."""
    if noise > 0:
        # Uniform, since normal noise costs more than the network that is trained on it.
        width = noise * 3**0.5
        noise_BFE = torch.empty(frames_BFE.shape).uniform_(-width, width)
        frames_BFE = noise_BFE.to(frames_BFE.device).add_(frames_BFE)
    if mask_frames > 0:
        hidden = int(torch.randint(0, mask_frames + 1, ()))
        start = int(torch.randint(0, frames_BFE.shape[1] - hidden + 1, ()))
        frames_BFE = frames_BFE if noise > 0 else frames_BFE.clone()
        frames_BFE[:, start : start + hidden] = 0
    return frames_BFE
