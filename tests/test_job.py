"""What a job leaves of itself: its exit code, and a status file that is whole, or not there."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from mara_ray import job
from mara_ray.storage import Storage

OURS = {"stages": {"curves": {"outputs": {"curves/bank.parquet": "0a"}}}}


@pytest.fixture(autouse=True)
def handler():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["0_run.py", *arguments])
    with pytest.raises(SystemExit) as leaving:
        job.run_job("run")
    return leaving.value.code


def test_a_wrong_key_is_the_users_fault(tmp_path, monkeypatch) -> None:
    assert exit_code(monkeypatch, "--set", "curves.colour=1", "--out", str(tmp_path)) == 2
    status = json.loads((tmp_path / job.STATUS_FILE).read_text())
    assert (status["command"], status["exit_code"], status["hashes"]) == ("run", 2, {})


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_hashes_are_of_what_is_done(kind, tmp_path, monkeypatch) -> None:
    uri = "memory://jobs/one"
    Storage(uri).write("manifest.json", json.dumps(OURS).encode())
    (tmp_path / "manifest.json").write_text(json.dumps(OURS))
    monkeypatch.setattr(job, "main", lambda: sys.exit(0))
    assert exit_code(monkeypatch, f"--out={uri if kind == 'memory' else tmp_path}") == 0
    found = (
        Storage(uri).read(job.STATUS_FILE) if kind == "memory" else (tmp_path / job.STATUS_FILE).read_bytes()
    )
    assert json.loads(found or b"")["hashes"].keys() == {"curves"}


def test_stopped_while_it_works(tmp_path: Path, monkeypatch, capfd) -> None:
    (tmp_path / job.STATUS_FILE).write_text("of the try before")

    def work() -> None:
        assert not (tmp_path / job.STATUS_FILE).exists()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(job, "main", work)
    assert exit_code(monkeypatch, "--out", str(tmp_path)) == job.STOPPED == 143
    assert json.loads((tmp_path / job.STATUS_FILE).read_text())["exit_code"] == 143
    assert "submit the job again" in capfd.readouterr().err


def test_stopped_and_broken_on_the_way_out(tmp_path: Path, monkeypatch) -> None:
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            sys.exit(1)

    monkeypatch.setattr(job, "main", work)
    assert exit_code(monkeypatch, "--out", str(tmp_path)) == job.STOPPED
    assert json.loads((tmp_path / job.STATUS_FILE).read_text())["exit_code"] == job.STOPPED


@pytest.mark.parametrize("arguments", [(), ("--out", "runs/a"), ("--out",)])
def test_results_must_outlive_the_job(arguments, monkeypatch, capfd) -> None:
    assert exit_code(monkeypatch, *arguments) == 2
    assert "--out" in capfd.readouterr().err


def test_a_place_that_cannot_be_is_told_in_a_line(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert exit_code(monkeypatch, "--out", str(tmp_path / "file")) == 2
    assert "error: --out: " in capsys.readouterr().err
    assert exit_code(monkeypatch, "--out", str(tmp_path), "--stages", "here") == 2
    assert "error: --stages: a job's own folder ends with it" in capsys.readouterr().err


@pytest.mark.parametrize("manifest", ["{}", "[]", '{"stages": {"curves": 1}}', "junk"])
def test_a_damaged_manifest_does_not_hide_what_went_wrong(manifest, tmp_path, monkeypatch) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    assert exit_code(monkeypatch, "--set", "curves.colour=1", "--out", str(tmp_path)) == 2
    assert json.loads((tmp_path / job.STATUS_FILE).read_text())["hashes"] == {}
