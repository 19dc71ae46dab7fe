"""The commands of the dashboards, up to what they start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mara_ray.commands.dashboards import dashboard, wandb_sync
from mara_ray.errors import MachineError, UserError


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two offline runs, of which one is uploaded, and a board."""
    for name in ("offline-run-1-a", "offline-run-2-b"):
        folder = tmp_path / "sweep" / "tracking" / "wandb" / name
        folder.mkdir(parents=True)
        (folder / f"run-{name[-1]}.wandb").touch()
    (folder / "run-b.wandb.synced").touch()
    (tmp_path / "sweep" / "events.out.tfevents.1").touch()
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that were started; none is, and all end with code 1."""
    commands: list[list[str]] = []

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_tensorboard_is_started_on_the_directory(
    logs: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(
        MachineError, match=r"^dashboard: TensorBoard ended with code 1; is --port 7007 free\?"
    ):
        dashboard(logs, 7007)
    assert started == [[sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--port", "7007"]]
    assert f"wandb leet {logs / 'sweep' / 'tracking' / 'wandb'}" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"^dashboard: .* holds no logs"):
        dashboard(tmp_path / "empty")


def test_what_is_not_uploaded_is_and_never_asks_for_a_key(
    logs: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(logs))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    left = str(logs / "sweep" / "tracking" / "wandb" / "offline-run-1-a")
    wandb_sync(logs, dry_run=True)
    assert capsys.readouterr().out.splitlines() == [left]
    with pytest.raises(UserError, match=r"^wandb-sync: there is no API key"):
        wandb_sync(logs)
    assert not started
    monkeypatch.setenv("WANDB_API_KEY", "x")
    with pytest.raises(MachineError, match=r"^wandb-sync: wandb ended with code 1"):
        wandb_sync(logs)
    assert started == [[sys.executable, "-m", "wandb", "sync", left]]
