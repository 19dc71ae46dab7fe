"""Build the shipped recordings of spoken yes/no words, by espeak-ng.

    pip install -e ".[speech]"
    python -m mara_ray.curves.datasets.build_speech

As in the YESNO corpus (OpenSLR SLR1), a recording holds eight words, each the Hebrew "ken" (yes) or
"lo" (no), at 8 kHz. Every recording has its own voice, rate, pitch, gain and noise. What ships are
log-mel features of eight bits; the engine and its voices (GPL) are not needed to use them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import signal

from mara_ray.curves.datasets.build_fashion_mnist import write_npz
from mara_ray.curves.datasets.speech import (
    ARCHIVE,
    HOP_SAMPLES,
    RATE_HZ,
    WORD_FRAMES,
    WORDS_PER_RECORDING,
    log_mel,
)

NUM_RECORDINGS = 200
WORDS = ("לא", "כן")  # no, yes
VOICES = ("he", "he+m1", "he+m3", "he+m5", "he+m7", "he+f1", "he+f2", "he+f3", "he+f4")
LOWEST_LOG_POWER, HIGHEST_LOG_POWER = -23.0, -4.0  # 0 and 255 of the stored levels
SEED = 0

Speaker = Callable[[str, str, int, int, int], np.ndarray]  # (word, voice, rate, pitch, range) -> samples


def load_speaker() -> Speaker:
    """The engine of the espeakng-loader wheel, through its C interface (speak_lib.h)."""
    import espeakng_loader

    engine = espeakng_loader.load_library()
    retrieve, utf8, rate_parameter, pitch_parameter, range_parameter = 2, 1, 1, 3, 4
    rate_hz = engine.espeak_Initialize(
        retrieve, 0, str(Path(espeakng_loader.get_data_path()).parent).encode(), 0
    )
    chunks: list[np.ndarray] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def receive(samples, count, events):  # type: ignore[no-untyped-def]
        if count > 0:
            chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    engine.espeak_SetSynthCallback(receive)

    def speak(word: str, voice: str, rate: int, pitch: int, pitch_range: int) -> np.ndarray:
        assert receive is not None  # the engine holds no reference of its own
        if engine.espeak_SetVoiceByName(voice.encode()) != 0:
            raise ValueError(f"espeak-ng has no voice {voice!r}")
        for parameter, value in (
            (rate_parameter, rate),
            (pitch_parameter, pitch),
            (range_parameter, pitch_range),
        ):
            engine.espeak_SetParameter(parameter, value, 0)
        chunks.clear()
        text = word.encode()
        engine.espeak_Synth(text, len(text) + 1, 0, 0, 0, utf8, None, None)
        engine.espeak_Synchronize()
        samples = np.concatenate(chunks).astype(np.float64) / 32768
        return signal.resample_poly(samples, RATE_HZ, rate_hz)

    return speak


def record(speak: Speaker, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One recording: samples in -1..1, labels (8,), and the sample at which each word begins (8,)."""
    labels_W = rng.integers(2, size=WORDS_PER_RECORDING)
    voice = VOICES[rng.integers(len(VOICES))]
    rate, pitch, pitch_range = (
        int(rng.integers(130, 221)),
        int(rng.integers(20, 81)),
        int(rng.integers(30, 71)),
    )
    pieces, start_W, length = [], [], 0
    for label in labels_W:
        pause = np.zeros(int(rng.uniform(0.05, 0.2) * RATE_HZ))
        word = _trimmed(speak(WORDS[label], voice, rate + int(rng.integers(-10, 11)), pitch, pitch_range))
        start_W.append(length + len(pause))
        pieces += [pause, word]
        length += len(pause) + len(word)
    samples = np.concatenate(pieces)
    samples *= rng.uniform(0.1, 0.6) / np.abs(samples).max()
    samples += rng.normal(0, 10 ** rng.uniform(-4, -2.3), len(samples))
    return samples, labels_W, np.array(start_W)


def _trimmed(samples: np.ndarray) -> np.ndarray:
    """A word without the silence around it, as long as WORD_FRAMES at most."""
    loud = np.flatnonzero(np.abs(samples) > 0.02 * np.abs(samples).max())
    return samples[loud[0] : loud[-1] + 1][: WORD_FRAMES * HOP_SAMPLES]


def build(archive: Path) -> None:
    """Write `archive`: `levels` uint8 (N, F, 20), `labels` uint8 (N, 8) and `starts` uint16 (N, 8)."""
    speak, rng = load_speaker(), np.random.default_rng(SEED)
    features, labels_NW, start_NW = [], [], []
    for _ in range(NUM_RECORDINGS):
        samples, labels_W, start_W = record(speak, rng)
        features.append(log_mel(samples))
        labels_NW.append(labels_W)
        start_NW.append(start_W // HOP_SAMPLES)
    num_frames = max(max(map(len, features)), int(np.max(start_NW)) + WORD_FRAMES)
    levels_NFE = np.zeros((NUM_RECORDINGS, num_frames, features[0].shape[1]), np.uint8)
    for row, log_power in enumerate(features):
        share = (log_power - LOWEST_LOG_POWER) / (HIGHEST_LOG_POWER - LOWEST_LOG_POWER)
        levels_NFE[row, : len(log_power)] = np.rint(255 * share.clip(0, 1))
    write_npz(
        archive,
        levels=levels_NFE,
        labels=np.array(labels_NW, np.uint8),
        starts=np.array(start_NW, np.uint16),
    )


if __name__ == "__main__":
    build(ARCHIVE)
