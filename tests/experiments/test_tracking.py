"""Both dashboards hold every line of the metrics file, also after an interrupt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mara_ray.config import TrackingConfig, load_config
from mara_ray.errors import UserError
from mara_ray.experiments.tracking import Place, Product, tracked, wandb_mode


def test_mode_is_never_a_prompt(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert wandb_mode(TrackingConfig()) == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert wandb_mode(TrackingConfig()) == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert wandb_mode(TrackingConfig()) == "disabled"
    assert wandb_mode(TrackingConfig(wandb="offline")) == "offline"
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    with pytest.raises(UserError, match="'sometimes'"):
        wandb_mode(TrackingConfig())


def test_tensorboard_is_complete_after_an_interrupt(tmp_path) -> None:
    config = load_config("quick", ["tracking.wandb=disabled"])
    metrics = tmp_path / "metrics.jsonl"

    def stage(steps: range) -> None:
        with tracked(config, "predictor", place(tmp_path, "predictor"), {"fm": metrics}):
            for step in steps:
                with open(metrics, "a") as file:
                    file.write(json.dumps({"step": step, "loss": 1.0 / (step + 1)}) + "\n")
                if step == 2 and steps.start == 0:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage(range(5))
    stage(range(3, 5))
    board = EventAccumulator(str(tmp_path / "tensorboard" / "predictor"))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("fm/loss")] == [
        (step, pytest.approx(1.0 / (step + 1))) for step in range(5)
    ]


def place(folder: Path, stage: str) -> Place:
    return Place(folder, "a group", stage, f"quick-{stage}", {"switching": 2})


def offline_runs(folder: Path) -> list[Path]:
    return sorted((folder / "wandb").glob("offline-run-*"))


def inspect(run: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *arguments, str(run)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_interrupted_offline_run_is_whole_up_to_there_and_replaced_by_the_next(tmp_path: Path) -> None:
    config = load_config("quick", ["tracking.wandb=offline"])
    metrics = tmp_path / "metrics.jsonl"

    def stage(last: int, interrupted: bool) -> None:
        with tracked(config, "allocator", place(tmp_path, "allocator"), {"mara": metrics}) as logged:
            metrics.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(last + 1)))
            if interrupted:
                raise KeyboardInterrupt
            logged.summary["policies"] = 1
            logged.product = Product("policy", "abc", (metrics,), {"bank": "def"})

    with pytest.raises(KeyboardInterrupt):
        stage(3, interrupted=True)
    (first,) = offline_runs(tmp_path)
    summary = json.loads(inspect(first, "--summary"))
    assert (summary["state"], summary["summary"]["mara/step"]) == ("failed", 3)
    stage(5, interrupted=False)
    (second,) = offline_runs(tmp_path)
    summary = json.loads(inspect(second, "--summary"))
    assert (first != second, summary["state"], summary["exit_code"]) == (True, "finished", 0)
    assert (summary["summary"]["mara/step"], summary["summary"]["policies"]) == (5, 1)
    artifacts = [
        record["artifact"] for record in map(json.loads, inspect(second).splitlines()) if "artifact" in record
    ]
    assert [(artifact["name"], artifact["type"]) for artifact in artifacts] == [("policy-abc", "policy")]
    assert json.loads(artifacts[0]["metadata"])["made_from"] == {"bank": "bank-def"}
