"""A sweep as a user meets it: killed twice and resumed it ends in the same table, and its logs are whole."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import mara_ray
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.experiments.grid import COLUMNS
from mara_ray.predictor.fitting import FlowTraining, make_predictor

TINY = Path(__file__).parents[1] / "tiny.yaml"
UPDATES = 2
CELLS = ("switch_cost_steps=0", "switch_cost_steps=2")
SHARED = ("curves", "predictor", "forecasts", "workloads")
pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def grid(toy_bank: CurveBank, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells on toy curves and an untrained predictor; each trains a policy of its own."""
    folder = tmp_path_factory.mktemp("grid")
    toy_bank.write(folder / "bank.parquet")
    settings = load_config(str(TINY)).predictor
    train_CL = toy_bank.ema_CL[toy_bank.rows("id", "train")]
    training = FlowTraining(settings, train_CL, 0, torch.device("cpu"))
    make_predictor(settings, training.average, 0).save(folder / "predictor")
    tree = {
        "name": "toy",
        "about": "a toy",
        "preset": str(TINY),
        "settings": {
            "curves.bank": str(folder / "bank.parquet"),
            "predictor.trained": str(folder / "predictor"),
            "allocator.policies": ["mara"],
            "allocator.updates": UPDATES,
            "evaluation.rivals": [],
            "evaluation.sets": ["id"],
            "evaluation.loads": [0.2],
            "evaluation.methods": ["mara", "lara", "fifo"],
            "tracking.wandb": "offline",
        },
        "axes": {"simulator.switch_cost_steps": [0, 2]},
    }
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def start(grid: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    main = "from mara_ray.cli import main; main()"
    command = [sys.executable, "-c", main, "sweep", str(grid), "--out", str(out), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return printed, said


def kill_once_there(process: subprocess.Popen[str], out: Path, pattern: str) -> None:
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if any((out / "stages").glob(pattern)):
            break
        time.sleep(0.01)
    assert process.poll() is None, f"the sweep ended before it could be killed at {pattern}"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (out / "results.parquet").exists()


@pytest.fixture(scope="module")
def swept(grid: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The directories of a sweep that was left alone, and of one that was killed twice."""
    unbroken, killed = tmp_path_factory.mktemp("unbroken"), tmp_path_factory.mktemp("killed")
    kill_once_there(start(grid, killed), killed, "allocator.*/*/checkpoints/*/progress.json")
    kill_once_there(start(grid, killed), killed, "evaluation.*/parts/*.parquet")
    beside = start(grid, unbroken)
    end(start(grid, killed))
    end(beside)
    return unbroken, killed


def test_killed_twice_it_ends_in_the_same_table(swept: tuple[Path, Path]) -> None:
    unbroken, killed = (mara_ray.load_results(path) for path in swept)
    assert (swept[0] / "results.parquet").read_bytes() == (swept[1] / "results.parquet").read_bytes()
    assert unbroken.attrs["axes"] == ["simulator.switch_cost_steps"]
    assert {*unbroken.columns} - {*COLUMNS} == {"simulator.switch_cost_steps"}
    assert killed.groupby("cell")["simulator.switch_cost_steps"].first().to_dict() == {
        CELLS[0]: 0,
        CELLS[1]: 2,
    }
    lara = killed[killed["method"] == "lara"].groupby("cell")["completed"].sum()
    assert lara[CELLS[0]] > lara[CELLS[1]], "switching costs nothing, or it is not the cell's own"
    assert (swept[0] / "leads.png").read_bytes().startswith(b"\x89PNG")


def test_what_cells_share_is_made_once(swept: tuple[Path, Path]) -> None:
    for directory in swept:
        made = [path.name.split(".")[0] for path in (directory / "stages").glob("[a-z]*")]
        assert sorted(made) == sorted([*SHARED, *2 * ("allocator", "evaluation")])
        made_from = mara_ray.load_results(directory).attrs["made_from"]
        first, second = (made_from[name] for name in CELLS)
        assert {name for name in first if first[name] != second[name]} == {"allocator", "evaluation"}


def test_boards_are_whole_after_two_kills(swept: tuple[Path, Path]) -> None:
    boards = swept[1] / "tracking" / "tensorboard"
    assert sorted(path.name.split("-")[0] for path in (boards / "shared").iterdir()) == sorted(SHARED)
    for name in CELLS:
        board = EventAccumulator(str(boards / name / "allocator"))
        board.Reload()
        steps = [event.step for event in board.Scalars("mara-seed0/entropy")]
        assert steps == list(range(1, UPDATES + 1))
        assert list((boards / name / "evaluation").iterdir())
        (trial,) = (swept[1] / "trials").glob(f"*/{name}")
        table = EventAccumulator(str(trial))
        table.Reload()
        assert b"simulator.switch_cost_steps" in b"".join(table.PluginTagToContent("hparams").values())


def test_offline_runs_are_whole_after_two_kills(swept: tuple[Path, Path]) -> None:
    runs = sorted((swept[1] / "tracking" / "wandb").glob("offline-run-*"))
    assert len(runs) == len(SHARED) + 2 * len(CELLS), "what a killed stage left is still there"
    found, factors = {}, {}
    for run in runs:
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(run)]
        summary = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert (summary["state"], summary["exit_code"]) == ("finished", 0)
        found[summary["name"]] = summary["summary"]
        factors[summary["name"]] = summary["config"].get("factors")
    for name in CELLS:
        assert found[f"toy-{name}-allocator"]["mara-seed0/step"] == UPDATES
        assert factors[f"toy-{name}-allocator"] == {"simulator.switch_cost_steps": int(name[-1])}
        assert "completion/mara" in found[f"toy-{name}-evaluation"]


def test_run_again_it_does_nothing_and_is_told_in_json(grid: Path, swept: tuple[Path, Path]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (swept[0] / "stages").rglob("*.parquet")}
    printed, _ = end(start(grid, swept[0], "--json"))
    rows = json.loads(printed)
    assert {(row["cell"], row["method"]) for row in rows} >= {(CELLS[1], "mara"), (CELLS[0], "fifo")}
    assert before == {path: path.stat().st_mtime_ns for path in (swept[0] / "stages").rglob("*.parquet")}


def test_what_cannot_be_trained_is_told_in_one_line(grid: Path, tmp_path: Path) -> None:
    never = ("--set", "workload.arrival_probability=0.0001", "--set", "tracking.wandb=disabled")
    process = start(grid, tmp_path, *never)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 2, said
    (line,) = [line for line in said.splitlines() if "rror" in line]
    assert line.startswith("error: sweep: 2 of 2 trials failed (allocator: no step of a whole update held a")
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def rules(grid: Path) -> Path:
    """A sweep that trains nothing."""
    tree = yaml.safe_load(grid.read_text())
    tree["settings"] |= {
        "allocator.policies": [], "evaluation.methods": ["lara", "fifo"], "tracking.wandb": "disabled",
    }  # fmt: skip
    tree["axes"] = {}
    path = grid.with_name("rules.yaml")
    path.write_text(yaml.safe_dump(tree))
    return path


def test_what_was_deleted_or_changed_is_made_again(rules: Path, toy_bank: CurveBank, tmp_path: Path) -> None:
    end(start(rules, tmp_path))
    first = (tmp_path / "results.parquet").read_bytes()
    shutil.rmtree(tmp_path / "stages")
    end(start(rules, tmp_path))
    assert (tmp_path / "results.parquet").read_bytes() == first
    bank = rules.with_name("bank.parquet")
    before = bank.read_bytes()
    toy_bank.take(np.arange(len(toy_bank) - 1)).write(bank)
    try:
        end(start(rules, tmp_path))
    finally:
        bank.write_bytes(before)
    changed, found = mara_ray.load_results(tmp_path), pd.read_parquet(io.BytesIO(first))
    assert changed.attrs["made_from"] != found.attrs["made_from"]
