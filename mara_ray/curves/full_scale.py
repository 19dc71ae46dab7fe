"""The configurations of the paper's scale: eight for learning, two out of distribution; meant for GPUs.

The paper names the data (CIFAR-10, IMDB, YESNO, ALE); the models are those of its predecessor's mixed
bundle: ResNet-18, ResNet-34 and a CNN; an RNN, an MLP and a GRU; an audio transformer and an audio LSTM.
The data must lie in `curves.data_folder`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from mara_ray.curves.configuration import Configuration, Hyperparameters, choice, log_uniform, optimiser
from mara_ray.curves.datasets import atari, cifar, imdb, yesno
from mara_ray.curves.models.control import ScreenNet
from mara_ray.curves.models.image import CNN, ResNet, ViT
from mara_ray.curves.models.speech import AudioTransformer, SpeechRNN
from mara_ray.curves.models.text import BagOfWords, TextRNN
from mara_ray.curves.supervised import Supervised

BATCH_SIZES = (64, 128, 256)


def _image_data(rng: np.random.Generator) -> Hyperparameters:
    return {
        "examples": round(log_uniform(rng, 5000, 50000)),
        "label_noise": choice(rng, 0.0, 0.0, 0.05, 0.1),
    }


def _resnet(rng: np.random.Generator, stages: list[int]) -> Hyperparameters:
    return {
        "width": choice(rng, 32, 64),
        "stages": stages,
        "stride": 1,
        **optimiser(rng, BATCH_SIZES, sgd=(1e-2, 0.2), adam=(2e-4, 4e-3)),
        **_image_data(rng),
    }


def _cnn(rng: np.random.Generator) -> Hyperparameters:
    return {
        "width": choice(rng, 16, 32, 64),
        "dropout": choice(rng, 0.0, 0.25),
        **optimiser(rng, BATCH_SIZES, sgd=(5e-3, 0.1), adam=(4e-4, 8e-3)),
        **_image_data(rng),
    }


def _vit(rng: np.random.Generator) -> Hyperparameters:
    return {
        "patch": choice(rng, 4, 8),
        "width": choice(rng, 64, 128, 192),
        "depth": choice(rng, 2, 4, 6),
        "heads": choice(rng, 2, 4),
        **optimiser(rng, BATCH_SIZES, adamw=(1e-4, 2e-3), sgd=(1e-2, 0.2)),
        **_image_data(rng),
        "warmup_batches": choice(rng, 0, 200, 1000),
    }


def _text_data(rng: np.random.Generator) -> Hyperparameters:
    return {
        "examples": round(log_uniform(rng, 2500, 25000)),
        "vocabulary": choice(rng, 5000, 10000, 20000),
        "label_noise": choice(rng, 0.0, 0.0, 0.05, 0.1),
        "word_dropout": float(rng.uniform(0, 0.3)),
        "words": choice(rng, 64, 128, 256),
    }


def _mlp(rng: np.random.Generator) -> Hyperparameters:
    return {
        "width": choice(rng, 32, 64, 128),
        "depth": choice(rng, 1, 2),
        "dropout": choice(rng, 0.0, 0.2, 0.4),
        **optimiser(rng, BATCH_SIZES, adam=(3e-4, 1e-2), rmsprop=(3e-4, 3e-3)),
        **_text_data(rng),
    }


def _rnn(rng: np.random.Generator, cell: str) -> Hyperparameters:
    return {
        "cell": cell,
        "embedding": choice(rng, 32, 64),
        "width": choice(rng, 32, 64, 128),
        **optimiser(rng, BATCH_SIZES, adam=(5e-4, 1e-2), rmsprop=(3e-4, 3e-3)),
        **_text_data(rng),
    }


def _speech_data(rng: np.random.Generator) -> Hyperparameters:
    return {
        "examples": choice(rng, 30, 45, 60),
        "label_noise": choice(rng, 0.0, 0.0, 0.05, 0.1),
        "feature_noise": float(rng.uniform(0, 0.5)),
        "time_mask_frames": choice(rng, 0, 0, 20, 40),
    }


def _audio_transformer(rng: np.random.Generator) -> Hyperparameters:
    return {
        "width": choice(rng, 32, 64, 96),
        "depth": choice(rng, 1, 2, 4),
        "heads": choice(rng, 2, 4),
        **optimiser(rng, (8, 16, 32), adamw=(1.5e-4, 3e-3), adam=(1.5e-4, 3e-3)),
        **_speech_data(rng),
        "warmup_batches": choice(rng, 0, 100, 400),
    }


def _audio_lstm(rng: np.random.Generator) -> Hyperparameters:
    return {
        "cell": "lstm",
        "width": choice(rng, 32, 64, 128),
        **optimiser(rng, (8, 16, 32), adam=(5e-4, 1e-2), rmsprop=(3e-4, 3e-3)),
        **_speech_data(rng),
    }


def _screen_values(rng: np.random.Generator) -> Hyperparameters:
    return {
        "game": choice(rng, *atari.GAMES),
        "examples": round(log_uniform(rng, 500, 3900)),
        "discount": choice(rng, 0.9, 0.95, 0.98),
        "width": choice(rng, 16, 32),
        **optimiser(rng, (32, 64), adam=(1e-4, 2e-3), rmsprop=(1e-4, 1e-3)),
    }


FULL_SCALE = (
    Configuration(
        "cifar_resnet18",
        "id",
        "cifar10",
        partial(_resnet, stages=[2, 2, 2, 2]),
        partial(Supervised, cifar.draw_images, ResNet),
    ),
    Configuration(
        "cifar_resnet34",
        "id",
        "cifar10",
        partial(_resnet, stages=[3, 4, 6, 3]),
        partial(Supervised, cifar.draw_images, ResNet),
    ),
    Configuration("cifar_cnn", "id", "cifar10", _cnn, partial(Supervised, cifar.draw_images, CNN)),
    Configuration(
        "imdb_rnn", "id", "imdb", partial(_rnn, cell="rnn"), partial(Supervised, imdb.draw_reviews, TextRNN)
    ),
    Configuration("imdb_mlp", "id", "imdb", _mlp, partial(Supervised, imdb.draw_reviews, BagOfWords)),
    Configuration(
        "imdb_gru", "id", "imdb", partial(_rnn, cell="gru"), partial(Supervised, imdb.draw_reviews, TextRNN)
    ),
    Configuration(
        "yesno_transformer",
        "id",
        "yesno",
        _audio_transformer,
        partial(Supervised, yesno.draw_recordings, AudioTransformer),
    ),
    Configuration(
        "yesno_lstm", "id", "yesno", _audio_lstm, partial(Supervised, yesno.draw_recordings, SpeechRNN)
    ),
    Configuration("vit_cifar", "vit", "cifar10", _vit, partial(Supervised, cifar.draw_images, ViT)),
    Configuration(
        "rl_atari_screen",
        "rl",
        "atari_screen",
        _screen_values,
        partial(Supervised, atari.draw_screen_values, ScreenNet),
    ),
)
