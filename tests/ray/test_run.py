"""`mara run` as a user meets it: whole, again, killed in every stage, and given bad input."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mara_ray.cli import app, main
from mara_ray.config import load_config
from mara_ray.errors import UserError
from mara_ray.experiments.run import Run
from mara_ray.experiments.stages import STAGES

TINY = Path(__file__).parents[1] / "tiny.yaml"
pytestmark = [pytest.mark.ray, pytest.mark.slow]


def command(out: Path, *arguments: str) -> list[str]:
    main = "from mara_ray.cli import main; main()"
    return [sys.executable, "-c", main, "run", "--preset", str(TINY), "--out", str(out), *arguments]


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(out, *arguments), capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> tuple[subprocess.Popen, Path]:
    """A run that is under way while the first test kills another."""
    out = tmp_path_factory.mktemp("unbroken")
    return subprocess.Popen(command(out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), out


@pytest.fixture(scope="module")
def unbroken(started: tuple[subprocess.Popen, Path]) -> Path:
    process, out = started
    printed, said = process.communicate(timeout=400)
    assert process.returncode == 0, said
    assert "MARA" in printed
    assert str(out / "report.html") in said
    return out


# What a stage leaves once it is well under way.
UNDER_WAY = {
    "curves": "parts/*.json",
    "predictor": "train-*/**/state.pt",
    "forecasts": "**/table.json",
    "workloads": "*.npz",
    "allocator": "*/checkpoints/*/progress.json",
    "evaluation": "parts/*.parquet",
    "report": "inputs.txt",
}


def kill_in_stage(out: Path, stage: str) -> None:
    """Start a run and kill -9 it in a stage."""
    process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if any((out / stage).glob(UNDER_WAY[stage])):
            break
        time.sleep(0.01)
    assert process.poll() is None, f"the run ended before it could be killed in {stage}"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert stage not in Run(load_config(str(TINY)), out).records(), f"{stage} was done before the kill"


def test_killed_in_every_stage_it_ends_with_the_same_summary(
    started: tuple[subprocess.Popen, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert list(UNDER_WAY) == [stage.name for stage in STAGES]
    for stage in UNDER_WAY:
        kill_in_stage(tmp_path, stage)
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    unbroken = request.getfixturevalue("unbroken")  # only now: it waits for the other run
    assert (tmp_path / "summary.json").read_text() == (unbroken / "summary.json").read_text()


def test_a_second_run_does_nothing(unbroken: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*.parquet")}
    used_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run(unbroken, "--json")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0
    # Seconds of computing, since other tests run beside this one.
    assert used.ru_utime + used.ru_stime - used_before.ru_utime - used_before.ru_stime < 15
    assert "nothing to do" in result.stderr
    assert json.loads(result.stdout) == json.loads((unbroken / "summary.json").read_text())
    assert before == {path: path.stat().st_mtime_ns for path in unbroken.rglob("*.parquet")}


def test_pages_and_pictures_of_a_finished_run(unbroken: Path, tmp_path: Path) -> None:
    runner, run_directory = CliRunner(), str(unbroken)
    summary = (unbroken / "summary.json").read_text()
    (unbroken / "report.html").unlink()
    assert runner.invoke(app, ["report", run_directory]).exit_code == 0
    assert (unbroken / "report.html").is_file() and (unbroken / "summary.json").read_text() == summary
    picture = tmp_path / "two.png"
    asked = ["gantt", run_directory, "--out", str(picture)]
    assert runner.invoke(app, [*asked, "--methods", "lara,fifo"]).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    for wrong, said in (
        (["--methods", "lara"], "are not two methods"),
        (["--methods", "lara,fifo", "--root", "9"], "root: 9 was not evaluated; use one of"),
        (["--methods", "lara,fifo", "--load", "0.5"], "load: 0.5 was not evaluated; use one of"),
        (["--methods", "lara,fifo", "--episode", "99"], "episode: 99 is not among"),
    ):
        error = runner.invoke(app, [*asked, *wrong]).exception
        assert isinstance(error, UserError) and said in str(error)
    error = runner.invoke(app, ["report", str(tmp_path)]).exception
    assert isinstance(error, UserError) and "holds no run" in str(error)


@pytest.mark.parametrize("damaged", ["curves/bank.parquet", "forecasts/fm/steps.npy"])
def test_a_damaged_output_is_made_again(unbroken: Path, damaged: str) -> None:
    path = unbroken / damaged
    intact = path.read_bytes()
    path.write_bytes(intact[: len(intact) // 2])
    result = run(unbroken)
    assert result.returncode == 0, result.stderr
    assert path.read_bytes() == intact


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--set", "predictor.epoch=3"], 2, "'predictor.epochs'"),
        (["--set", "cluster.address=127.0.0.1:1"], 1, "nothing answers at 127.0.0.1:1"),
        (["--set", "curves.configurations={img_mpl: 3}"], 2, "'img_mpl' is unknown"),
        (["--set", "evaluation.methods=[marra]"], 2, "the nearest is 'mara'"),
        (["--force", "curve"], 2, "'curve' is unknown"),
        (["--out", "/proc/mara"], 2, "/proc/mara cannot be written"),
    ],
)
def test_bad_input_is_told_in_one_line(
    tmp_path: Path,
    arguments: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["mara", *command(tmp_path, *arguments)[3:]])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == code
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if "error" in line.lower()]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in said
