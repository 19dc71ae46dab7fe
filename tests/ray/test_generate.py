"""The bank's bytes depend on the seed alone: not on workers, kills, or damaged parts."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray

from mara_ray.config import CurvesConfig
from mara_ray.curves import candidates, generate
from mara_ray.curves.bank import CurveBank, smooth
from mara_ray.curves.training import CatalogTask
from mara_ray.errors import MachineError, UserError
from mara_ray.progress import silent

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

CONFIG = CurvesConfig(
    configurations={"img_mlp": 5, "rl_cartpole_ppo": 1},
    length_points=40,
    batches_per_point=2,
    curves_per_task=2,
)
SEED = 5


ONE_WORKER = """
import os, signal, sys
from pathlib import Path
from mara_ray.config import ClusterConfig, CurvesConfig
from mara_ray.curves.generate import generate_bank
from mara_ray.experiments.cluster import connect

def die(done, total, text):
    if done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

connect(ClusterConfig(num_cpus=1))
generate_bank(CurvesConfig.model_validate_json(sys.argv[1]), 5, Path(sys.argv[2]), die)
"""


def run_with_one_worker(directory: Path, dies_at: int) -> int:
    arguments = [CONFIG.model_dump_json(), str(directory), str(dies_at)]
    return subprocess.run([sys.executable, "-c", ONE_WORKER, *arguments]).returncode


@pytest.fixture(scope="module")
def made(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank made without interruption by two workers."""
    directory = tmp_path_factory.mktemp("made")
    generate.generate_bank(CONFIG, SEED, directory, silent)
    return directory


def test_bank_holds_what_was_asked_for(made: Path) -> None:
    bank = CurveBank.read(made / "bank.parquet")
    for name, wanted in CONFIG.configurations.items():
        of_it = bank.configuration == name
        assert bank.accepted[of_it].sum() == wanted
        assert bank.accepted[np.flatnonzero(of_it)[-1]], "candidates end with the last one that is needed"
        numbers = [int(curve_id.split("/")[1]) for curve_id in bank.curve_id[of_it]]
        assert numbers == list(range(of_it.sum()))
    assert bank.raw_CL.shape == (len(bank), 40)
    assert np.array_equal(bank.ema_CL, smooth(bank.raw_CL))
    assert {str(s) for s in bank.split[bank.set == "id"]} == {"train", "test", "validation"}
    assert {str(s) for s in bank.split[bank.set != "id"]} == {"test"}
    assert not bank.accepted.all(), "those that did not learn are kept"
    assert [candidates.status_of(raw_L) for raw_L in bank.raw_CL] == bank.status.tolist()
    assert (bank.accepted == (bank.status == "ok")).all()


def test_manifest_accounts_for_the_work(made: Path) -> None:
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["bank_hash"] == CurveBank.read(made / "bank.parquet").content_hash
    assert manifest["configurations"]["img_mlp"]["accepted"] == 5
    assert manifest["configurations"]["img_mlp"]["cpu_s_per_accepted_curve"] > 0
    assert {"mara_ray", "python", "torch", "numpy", "ray"} <= set(manifest["versions"])
    assert sum(manifest["trained_on"].values()) == manifest["curves"]


def test_a_curve_can_be_made_again_from_its_row(made: Path) -> None:
    bank = CurveBank.read(made / "bank.parquet")
    for name in CONFIG.configurations:
        row = int(np.flatnonzero(bank.configuration == name)[0])
        candidate = candidates.make_candidate(name, 0, CONFIG, SEED)
        assert candidate.seed == bank.seed[row]
        assert candidate.hyperparameters == bank.hyperparameters_of(row)
        assert candidates.train_candidate(candidate, "cpu", Path("data"))["raw"] == bank.raw_CL[row].tolist()


@pytest.mark.slow
def test_killed_driver_and_one_worker_give_the_same_bytes(made: Path, tmp_path: Path) -> None:
    assert run_with_one_worker(tmp_path, dies_at=2) == -signal.SIGKILL
    kept = len(list((tmp_path / "parts").glob("*.json")))
    assert kept >= 2 and not (tmp_path / "bank.parquet").exists()
    assert run_with_one_worker(tmp_path, dies_at=99) == 0
    assert (tmp_path / "bank.parquet").read_bytes() == (made / "bank.parquet").read_bytes()
    before, after = json.loads((tmp_path / "manifest.json").read_text())["trained_on"].values()
    assert kept in (before, after), "nothing was trained twice"


def test_killed_worker_is_replaced(made: Path, tmp_path: Path) -> None:
    victims = []

    def kill_one(done: int, total: int, text: str) -> None:
        for process in psutil.Process().children(recursive=True):
            if not victims and process.name().startswith("ray::_train"):
                process.kill()
                victims.append(process.pid)

    generate.generate_bank(CONFIG, SEED, tmp_path, kill_one)
    assert victims
    assert (tmp_path / "bank.parquet").read_bytes() == (made / "bank.parquet").read_bytes()


def test_training_that_always_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = generate.CONFIGURATIONS["img_mlp"]
    broken = dataclasses.replace(entry, draw=lambda rng: {**entry.draw(rng), "optimiser": "nonsense"})
    monkeypatch.setitem(generate.CONFIGURATIONS, "img_mlp", broken)
    with pytest.raises(MachineError, match=r"a training of img_mlp failed, .*unknown optimiser"):
        generate.generate_bank(CONFIG, SEED, tmp_path, silent)


def test_users_fault_in_a_worker_is_told_as_one() -> None:
    @ray.remote
    def without_data() -> None:
        raise UserError("text: the package is missing; install it")

    with pytest.raises(UserError, match=r"^text: the package is missing; install it$"):
        generate._result(without_data.remote(), generate.Series("txt_bow", 1))


def test_damaged_files_are_made_again(made: Path) -> None:
    expected = (made / "bank.parquet").read_bytes()
    (compacted,) = (made / "finished").iterdir()
    compacted.write_bytes(compacted.read_bytes()[:-300])
    (made / "bank.parquet").write_bytes(expected[:500])
    generate.generate_bank(CONFIG, SEED, made, silent)
    assert (made / "bank.parquet").read_bytes() == expected


def test_more_curves_later_keep_the_first_ones(made: Path, tmp_path: Path) -> None:
    few = CONFIG.model_copy(update={"configurations": {"img_mlp": 3}})
    bank = generate.generate_bank(few, SEED, tmp_path, silent)
    all_of_it = CurveBank.read(made / "bank.parquet")
    rows = np.flatnonzero(np.isin(all_of_it.curve_id, bank.curve_id))
    assert np.array_equal(all_of_it.raw_CL[rows], bank.raw_CL)
    assert all_of_it.split[rows].tolist() == bank.split.tolist()


def test_progress_reaches_its_end(made: Path) -> None:
    reports = []
    generate.generate_bank(CONFIG, SEED, made, lambda done, total, text: reports.append((done, total)))
    assert reports == [(6, 6)], "all parts are there already"


def test_too_few_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = generate.CONFIGURATIONS["img_mlp"]
    idle = dataclasses.replace(entry, draw=lambda rng: {**entry.draw(rng), "learning_rate": 1e-9})
    monkeypatch.setitem(generate.CONFIGURATIONS, "img_mlp", idle)
    config = CurvesConfig(configurations={"img_mlp": 2}, length_points=20, batches_per_point=1)
    with pytest.raises(UserError, match=r"2 accepted curves wanted, but only 0 of 8 trainings learned"):
        generate.generate_bank(config, SEED, tmp_path, silent)
    assert len(list((tmp_path / "parts").iterdir())) == 8


def test_a_training_that_diverges_is_kept_but_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([0.9, 0.4, np.inf, 0.1])
    monkeypatch.setattr(CatalogTask, "run_block", lambda task: next(losses))
    candidate = candidates.make_candidate("img_mlp", 0, CONFIG, SEED)
    part = candidates.train_candidate(candidate, "cpu", Path("data"))
    assert part["status"] == "diverged"
    highest = max(part["raw"][0], np.float32(0.9))
    assert part["raw"][1:] == [np.float32(0.9), np.float32(0.4)] + [highest] * 37


def test_what_becomes_of_a_training() -> None:
    falling = np.linspace(1.0, 0.5, 40)
    assert candidates.status_of(falling) == "ok"
    assert candidates.status_of(np.full(40, 0.7)) == "flat"
    assert candidates.status_of(falling[::-1]) == "diverged"


def test_a_loss_that_is_no_number_is_recorded_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([0.9, np.nan])
    monkeypatch.setattr(CatalogTask, "run_block", lambda task: next(losses))
    part = candidates.train_candidate(
        candidates.make_candidate("img_mlp", 0, CONFIG, SEED), "cpu", Path("data")
    )
    assert part["status"] == "nan" and np.isfinite(part["raw"]).all()


def test_unknown_configuration(tmp_path: Path) -> None:
    config = CurvesConfig(configurations={"img_mpl": 2})
    with pytest.raises(UserError, match=r"'img_mpl' is unknown; the nearest is 'img_mlp'"):
        generate.generate_bank(config, SEED, tmp_path, silent)


def test_missing_data_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    config = CurvesConfig(configurations={"img_mlp": 2, "imdb_gru": 2}, data_folder=tmp_path)
    with pytest.raises(
        UserError, match=r"configurations\.imdb_gru: .*train/neg holds no review; unpack .*in "
    ):
        generate.generate_bank(config, SEED, tmp_path, silent)
    assert list(tmp_path.iterdir()) == []


def test_no_gpu_where_one_is_asked_for(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"num_gpus_per_task": 0.5})
    with pytest.raises(UserError, match=r"num_gpus_per_task: 0\.5 asked for, but Ray has 0 GPUs"):
        generate.generate_bank(config, SEED, tmp_path, silent)
