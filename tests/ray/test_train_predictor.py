"""Training under Ray Train: killed drivers and workers change nothing, more workers almost nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from ray.train import Result
from ray.train.torch import TorchTrainer
from ray.train.v2.api.exceptions import ControllerError

from mara_ray.artifacts import file_hash
from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import MachineError, UserError
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.train import train_predictor
from mara_ray.progress import silent

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

CONFIG = PredictorConfig(encoder_width=12, velocity_width=24, epochs=20, batch_curves=4)
OUTPUTS = ("weights.safetensors", "predictor.json", "metrics.jsonl")

KILLED_DRIVER = """
import os, signal, sys
from pathlib import Path
from mara_ray.config import ClusterConfig, PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.experiments.cluster import connect
from mara_ray.predictor.train import train_predictor

def die(done, total, text):
    if done >= 3:
        os.kill(os.getpid(), signal.SIGKILL)

connect(ClusterConfig(num_cpus=2))
config = PredictorConfig.model_validate_json(sys.argv[3])
train_predictor(config, CurveBank.read(Path(sys.argv[1])), 0, Path(sys.argv[2]), die)
"""


@pytest.fixture(scope="module")
def unbroken(toy_bank: CurveBank, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that nothing disturbed."""
    folder: Path = tmp_path_factory.mktemp("unbroken")
    train_predictor(CONFIG, toy_bank, 0, folder, silent)
    return folder


def test_files_and_metrics(toy_bank: CurveBank, unbroken: Path) -> None:
    assert sorted(path.name for path in unbroken.iterdir()) == sorted([*OUTPUTS, "manifest.json"])
    manifest = json.loads((unbroken / "manifest.json").read_text())
    assert manifest["hash"] == FlowPredictor.load(unbroken).content_hash and manifest["cpu_s_per_worker"] > 0
    assert manifest["bank_hash"] == toy_bank.content_hash and manifest["epoch"] == 20
    rows = [json.loads(line) for line in (unbroken / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert rows[-1]["loss"] < rows[0]["loss"]
    best = min(rows, key=lambda row: row["validation_mae"])
    assert rows[-1]["best_epoch"] == best["step"]


def test_a_finished_training_is_not_done_again(toy_bank: CurveBank, unbroken: Path) -> None:
    before = [(unbroken / name).stat().st_mtime_ns for name in OUTPUTS]
    predictor = train_predictor(CONFIG, toy_bank, 0, unbroken, silent)
    assert predictor.content_hash == FlowPredictor.load(unbroken).content_hash
    assert [(unbroken / name).stat().st_mtime_ns for name in OUTPUTS] == before


def test_killed_driver_and_killed_worker_change_nothing(
    toy_bank: CurveBank, unbroken: Path, tmp_path: Path
) -> None:
    """The driver dies after a few epochs; the next one picks up, and loses its worker some epochs later."""
    toy_bank.write(tmp_path / "bank.parquet")
    folder = tmp_path / "predictor"
    arguments = [str(tmp_path / "bank.parquet"), str(folder), CONFIG.model_dump_json()]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    driver = subprocess.run([sys.executable, "-c", KILLED_DRIVER, *arguments], env=environment)
    assert driver.returncode == -signal.SIGKILL
    assert not (folder / "weights.safetensors").exists()
    done_before = len((folder / "metrics.jsonl").read_text().splitlines())
    assert done_before >= 3
    first_reported: list[int] = []
    killed: list[int] = []

    def kill_worker(done: int, total: int, text: str) -> None:
        first_reported.append(done)
        if done >= done_before + 2 and not killed:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.ZombieProcess):  # it ended by itself, and nobody has noticed
                    if "ray::RayTrain" in " ".join(process.cmdline()):
                        process.kill()
                        killed.append(process.pid)

    train_predictor(CONFIG, toy_bank, 0, folder, kill_worker)
    assert first_reported[0] >= done_before - 1  # picked up, not begun again
    assert killed
    assert all(file_hash(folder / name) == file_hash(unbroken / name) for name in OUTPUTS)


def test_a_checkpoint_that_vanishes_is_looked_for_again(
    toy_bank: CurveBank, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the controller of a killed driver removes it: once is borne, twice is told."""
    attempts: list[int] = []
    fit, failures = TorchTrainer.fit, [1]

    def fail_first(trainer: TorchTrainer) -> Result:
        attempts.append(1)
        if len(attempts) <= failures[0]:
            raise ControllerError(FileNotFoundError("Path not found: checkpoint_1"))
        return fit(trainer)

    monkeypatch.setattr(TorchTrainer, "fit", fail_first)
    monkeypatch.setattr("mara_ray.predictor.train.LEFT_BEHIND_S", 0.0)
    train_predictor(CONFIG, toy_bank, 0, tmp_path / "once", silent)
    assert len(attempts) == 2
    assert all(file_hash(tmp_path / "once" / name) == file_hash(unbroken / name) for name in OUTPUTS)
    attempts.clear()
    failures[0] = 2
    with pytest.raises(MachineError, match=r"Path not found: checkpoint_1\); run again to resume"):
        train_predictor(CONFIG, toy_bank, 0, tmp_path / "twice", silent)


def test_two_workers_differ_only_in_rounding(toy_bank: CurveBank, unbroken: Path, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"num_workers": 2})
    train_predictor(config, toy_bank, 0, tmp_path, silent)
    for one, two in zip(
        *((p / "metrics.jsonl").read_text().splitlines() for p in (unbroken, tmp_path)), strict=True
    ):
        assert json.loads(two)["validation_mae"] == pytest.approx(json.loads(one)["validation_mae"], abs=0.5)


def test_what_cannot_be_trained_is_told(toy_bank: CurveBank, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^predictor\.num_workers: 5 workers cannot share"):
        config = CONFIG.model_copy(update={"num_workers": 5})
        train_predictor(config, toy_bank, 0, tmp_path, silent)
    rows = [
        {name: getattr(toy_bank, name)[row].item() for name in
         ("curve_id", "configuration", "set", "split", "seed", "accepted", "status", "hyperparameters")}
        | {"raw": toy_bank.raw_CL[row], "ema": toy_bank.ema_CL[row]}
        for row in toy_bank.rows("rl")
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"no accepted train curve"):
        train_predictor(CONFIG, CurveBank.from_rows(rows, "rl only"), 0, tmp_path, silent)
