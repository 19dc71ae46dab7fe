"""The configurations on data that ship with the package: eight for learning, four out of distribution.

The ranges are those that gave varied learning curves when measured.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from mara_ray.curves.configuration import Configuration, Hyperparameters, choice, log_uniform, optimiser
from mara_ray.curves.datasets import atari, image, speech, text
from mara_ray.curves.models.control import MemoryNet
from mara_ray.curves.models.image import CNN, MLP, ResNet, ViT
from mara_ray.curves.models.speech import SpeechCNN, SpeechRNN
from mara_ray.curves.models.text import BagOfWords, TextCNN, TextRNN
from mara_ray.curves.reinforcement import CartPolePPO
from mara_ray.curves.supervised import Supervised
from mara_ray.curves.temporal_difference import MemoryDQN


def _image_data(rng: np.random.Generator) -> Hyperparameters:
    return {
        "classes": choice(rng, 3, 5, 10, 10, 10),
        "examples": round(log_uniform(rng, 500, 6000)),
        "label_noise": choice(rng, 0.0, 0.0, 0.05, 0.1, 0.2),
        "augmentation": choice(rng, "none", "shift", "erase"),
    }


def _text_data(rng: np.random.Generator, most_examples: int, words: tuple[int, ...]) -> Hyperparameters:
    return {
        "examples": int(rng.integers(300, most_examples + 1)),
        "vocabulary": choice(rng, 500, 1000, 2000),
        "label_noise": choice(rng, 0.0, 0.0, 0.05, 0.1),
        "word_dropout": float(rng.uniform(0, 0.3)),
        "words": words[0] if len(words) == 1 else choice(rng, *words),
    }


def _img_mlp(rng: np.random.Generator) -> Hyperparameters:
    return {
        "depth": choice(rng, 1, 2, 3),
        "width": choice(rng, 16, 32, 64, 128),
        "activation": choice(rng, "relu", "tanh", "gelu"),
        **optimiser(rng, sgd=(5e-3, 0.15), adam=(2e-4, 5e-3), rmsprop=(2e-4, 2e-3)),
        **_image_data(rng),
    }


def _img_cnn(rng: np.random.Generator) -> Hyperparameters:
    return {
        "width": choice(rng, 4, 8),
        "dropout": choice(rng, 0.0, 0.25),
        **optimiser(rng, sgd=(5e-3, 0.1), adam=(4e-4, 8e-3)),
        **_image_data(rng),
    }


def _img_resnet(rng: np.random.Generator) -> Hyperparameters:
    blocks = choice(rng, 1, 2)
    return {
        "width": choice(rng, 4, 8, 12),
        "stages": [blocks],
        "stride": 4,
        **optimiser(rng, sgd=(2e-3, 0.1), adam=(2e-4, 8e-3)),
        **_image_data(rng),
    }


def _txt_bow(rng: np.random.Generator) -> Hyperparameters:
    return {
        "width": choice(rng, 8, 16, 32),
        "depth": 0,
        "dropout": choice(rng, 0.0, 0.2, 0.4),
        **optimiser(rng, adam=(6e-3, 5e-2), rmsprop=(4e-3, 3e-2)),
        **_text_data(rng, 2000, (64,)),
    }


def _txt_cnn(rng: np.random.Generator) -> Hyperparameters:
    return {
        "embedding": choice(rng, 16, 24),
        "width": choice(rng, 8, 16),
        **optimiser(rng, adam=(2e-3, 2e-2), rmsprop=(1e-3, 6e-3)),
        **_text_data(rng, 1200, (32, 48, 64)),
    }


def _txt_rnn(rng: np.random.Generator) -> Hyperparameters:
    return {
        "cell": choice(rng, "lstm", "small gru"),
        "embedding": choice(rng, 8, 16),
        "width": choice(rng, 8, 16),
        **optimiser(rng, adam=(3e-3, 3e-2), rmsprop=(1e-3, 1e-2)),
        **_text_data(rng, 1000, (24, 32, 40)),
    }


def _spk_cnn(rng: np.random.Generator) -> Hyperparameters:
    return {
        "width": choice(rng, 8, 16),
        **optimiser(rng, (8, 16, 32), adam=(3e-4, 5e-3), sgd=(2e-2, 0.2)),
        "examples": choice(rng, 60, 120, 200),
        "label_noise": choice(rng, 0.0, 0.0, 0.05, 0.1),
        "feature_noise": float(rng.uniform(0, 0.5)),
        "time_mask_frames": choice(rng, 0, 0, 10, 20),
    }


def _spk_rnn(rng: np.random.Generator) -> Hyperparameters:
    return {
        "cell": choice(rng, "small gru", "lstm"),
        "width": choice(rng, 8, 16, 24),
        **optimiser(rng, adam=(2e-3, 1.2e-2), rmsprop=(1e-3, 5e-3)),
        "examples": round(log_uniform(rng, 300, 1600)),
        "label_noise": choice(rng, 0.0, 0.0, 0.05, 0.1),
        "feature_noise": float(rng.uniform(0, 1.2)),
        "time_mask_frames": choice(rng, 0, 0, 4, 8),
    }


def _vit_fmnist(rng: np.random.Generator) -> Hyperparameters:
    return {
        "patch": choice(rng, 4, 8),
        "width": choice(rng, 16, 24, 32),
        "depth": choice(rng, 1, 2, 3),
        "heads": choice(rng, 2, 4),
        **optimiser(rng, adamw=(1.5e-4, 4e-3), sgd=(1e-2, 0.2)),
        **_image_data(rng),
        "warmup_batches": choice(rng, 0, 40, 120),
    }


def _rl_cartpole_ppo(rng: np.random.Generator) -> Hyperparameters:
    return {
        "width": choice(rng, 16, 32, 64),
        **optimiser(rng, adam=(4e-4, 4e-3)),
        "weight_decay": 0.0,
        "schedule": "linear",
        "carts": 32,
        "rollout_steps": choice(rng, 4, 8),
        "epochs": choice(rng, 1, 2),
        "max_steps": choice(rng, 200, 300, 500),
        "discount": choice(rng, 0.97, 0.98, 0.99),
        "entropy_weight": choice(rng, 0.0, 0.005, 0.02),
    }


def _atari(rng: np.random.Generator) -> Hyperparameters:
    return {
        "game": choice(rng, *atari.GAMES),
        "examples": round(log_uniform(rng, 500, 3900)),
        "depth": choice(rng, 1, 2),
        "width": choice(rng, 32, 64, 128),
    }


def _rl_atari_value(rng: np.random.Generator) -> Hyperparameters:
    return {
        **_atari(rng),
        "discount": choice(rng, 0.9, 0.95, 0.98),
        **optimiser(rng, adam=(3e-4, 5e-3), rmsprop=(2e-4, 2e-3)),
    }


def _rl_atari_dqn(rng: np.random.Generator) -> Hyperparameters:
    return {
        **_atari(rng),
        "discount": choice(rng, 0.95, 0.98, 0.99),
        "double": choice(rng, False, True),
        "num_steps": choice(rng, 1, 3, 5),
        "polyak": log_uniform(rng, 0.005, 0.05),
        **optimiser(rng, adam=(2e-4, 4e-3), rmsprop=(2e-4, 2e-3)),
    }


EMBEDDED = (
    Configuration("img_mlp", "id", "fashion_mnist", _img_mlp, partial(Supervised, image.draw_images, MLP)),
    Configuration("img_cnn", "id", "fashion_mnist", _img_cnn, partial(Supervised, image.draw_images, CNN)),
    Configuration(
        "img_resnet", "id", "fashion_mnist", _img_resnet, partial(Supervised, image.draw_images, ResNet)
    ),
    Configuration(
        "txt_bow", "id", "movie_reviews", _txt_bow, partial(Supervised, text.draw_reviews, BagOfWords)
    ),
    Configuration(
        "txt_cnn", "id", "movie_reviews", _txt_cnn, partial(Supervised, text.draw_reviews, TextCNN)
    ),
    Configuration(
        "txt_rnn", "id", "movie_reviews", _txt_rnn, partial(Supervised, text.draw_reviews, TextRNN)
    ),
    Configuration(
        "spk_cnn", "id", "spoken_yes_no", _spk_cnn, partial(Supervised, speech.draw_recordings, SpeechCNN)
    ),
    Configuration(
        "spk_rnn", "id", "spoken_yes_no", _spk_rnn, partial(Supervised, speech.draw_words, SpeechRNN)
    ),
    Configuration(
        "vit_fmnist", "vit", "fashion_mnist", _vit_fmnist, partial(Supervised, image.draw_images, ViT)
    ),
    Configuration("rl_cartpole_ppo", "rl", None, _rl_cartpole_ppo, CartPolePPO),
    Configuration(
        "rl_atari_value",
        "rl",
        "atari_memory",
        _rl_atari_value,
        partial(Supervised, atari.draw_memory_values, MemoryNet),
    ),
    Configuration("rl_atari_dqn", "rl", "atari_memory", _rl_atari_dqn, MemoryDQN),
)
