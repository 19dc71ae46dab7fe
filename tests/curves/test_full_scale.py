"""The paper-scale configurations, end to end on tiny data sets in the real formats."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from mara_ray.curves.datasets import MISSING, cifar, imdb, yesno
from mara_ray.curves.full_scale import FULL_SCALE
from mara_ray.curves.training import make_task
from mara_ray.errors import UserError
from mara_ray.seeding import generator
from tests.full_sets import write_cifar, write_imdb, write_yesno

# As drawn, but small enough for a test.
SMALL = {
    "examples": 100,
    "batch_size": 8,
    "width": 8,
    "depth": 1,
    "words": 64,
    "label_noise": 0.0,
    "warmup_batches": 0,
}


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_cifar(folder)
    write_imdb(folder)
    write_yesno(folder)
    return folder


def drawn(name: str) -> dict[str, object]:
    entry = next(entry for entry in FULL_SCALE if entry.name == name)
    hyperparameters = entry.draw(generator(1, "hyperparameters"))
    small = {key: value for key, value in SMALL.items() if key in hyperparameters}
    return {**hyperparameters, **small, "schedule_batches": 60}


def test_they_are_the_papers_eight_and_two() -> None:
    assert [entry.name for entry in FULL_SCALE if entry.set == "id"] == [
        "cifar_resnet18",
        "cifar_resnet34",
        "cifar_cnn",
        "imdb_rnn",
        "imdb_mlp",
        "imdb_gru",
        "yesno_transformer",
        "yesno_lstm",
    ]
    assert [(entry.name, entry.set) for entry in FULL_SCALE[8:]] == [
        ("vit_cifar", "vit"),
        ("rl_atari_screen", "rl"),
    ]


@pytest.mark.parametrize("entry", FULL_SCALE, ids=lambda entry: entry.name)
def test_end_to_end_and_bitwise_resumable(entry, data_folder: Path) -> None:
    assert MISSING[entry.data](data_folder) is None
    hyperparameters = drawn(entry.name)
    unbroken = make_task(entry.name, hyperparameters, 1, 1, "cpu", data_folder)
    points = [unbroken.run_block() for _ in range(3)]
    assert np.isfinite([unbroken.initial_loss, *points]).all()
    first = make_task(entry.name, hyperparameters, 1, 1, "cpu", data_folder)
    first.run_block()
    stored = io.BytesIO()
    torch.save(first.state_dict(), stored)
    stored.seek(0)
    second = make_task(entry.name, hyperparameters, 1, 1, "cpu", data_folder)
    second.load_state_dict(torch.load(stored, weights_only=False))
    assert [second.run_block() for _ in range(2)] == points[1:]


@pytest.mark.parametrize(
    ("name", "learning_rate"),
    [("cifar_cnn", 0.005), ("imdb_mlp", 0.01), ("imdb_gru", 0.02), ("yesno_lstm", 0.02)],
)
def test_it_learns_from_the_files(name: str, learning_rate: float, data_folder: Path) -> None:
    easy = {"optimiser": "adam", "learning_rate": learning_rate, "schedule": "constant", "feature_noise": 0.0}
    easy |= {"time_mask_frames": 0, "word_dropout": 0.0, "dropout": 0.0, "width": 16}
    task = make_task(name, {**drawn(name), **easy}, 1, 2, "cpu", data_folder)
    points = [task.run_block() for _ in range(60)]
    assert np.mean(points[-8:]) < 0.85 * task.initial_loss


def test_resnets_have_their_layers() -> None:
    for name, layers in (("cifar_resnet18", 17), ("cifar_resnet34", 33)):
        entry = next(entry for entry in FULL_SCALE if entry.name == name)
        model = entry.problem.args[1]({**drawn(name), "width": 64}, (3, 32, 32), 10)
        kernels = [module.kernel_size for module in model.modules() if isinstance(module, torch.nn.Conv2d)]
        assert kernels.count((3, 3)) == layers
        million = sum(weight.numel() for weight in model.parameters()) / 1e6
        assert million == pytest.approx({17: 11.2, 33: 21.3}[layers], abs=0.1)


def test_missing_files(tmp_path: Path) -> None:
    for name, message in (
        ("cifar_cnn", r"data_batch_1 is missing; unpack CIFAR-10"),
        ("imdb_rnn", r"aclImdb/train/neg holds no review; unpack aclImdb_v1"),
        ("yesno_lstm", r"waves_yesno holds no wave file; unpack waves_yesno"),
    ):
        with pytest.raises(UserError, match=message):
            make_task(name, drawn(name), 1, 1, "cpu", tmp_path)


class Exploit:
    def __reduce__(self):
        return (print, ("a pickle that runs code",))


@pytest.mark.parametrize(
    "content", [b"", b"not a pickle", pickle.dumps({b"data": 3}), pickle.dumps(Exploit())]
)
def test_damaged_or_hostile_images(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cifar(tmp_path, 2)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(UserError, match=r"data_batch_3 is damaged .*; unpack it again from"):
        cifar.load_images.__wrapped__(tmp_path)
    assert capsys.readouterr().out == ""


def test_damaged_text(tmp_path: Path) -> None:
    write_imdb(tmp_path, 2)
    (tmp_path / "aclImdb" / "train" / "pos" / "1_9.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"1_9\.txt is damaged .*; unpack it again from"):
        imdb.load_reviews.__wrapped__(tmp_path)


def test_damaged_speech(tmp_path: Path) -> None:
    write_yesno(tmp_path, 2)
    wave = next((tmp_path / "waves_yesno").glob("*.wav"))
    wave.write_bytes(wave.read_bytes()[:30])
    with pytest.raises(UserError, match=r"\.wav is damaged .*; unpack it again from"):
        yesno.load_recordings.__wrapped__(tmp_path)
    wavfile.write(wave, 16000, np.zeros(99, np.int16))
    with pytest.raises(UserError, match=r"not 16-bit mono at 8000 Hz"):
        yesno.load_recordings.__wrapped__(tmp_path)
    wave.unlink()
    wavfile.write(wave.with_name("0_1_1.wav"), 8000, np.zeros(99, np.int16))
    with pytest.raises(UserError, match=r"its name does not tell eight words"):
        yesno.load_recordings.__wrapped__(tmp_path)
