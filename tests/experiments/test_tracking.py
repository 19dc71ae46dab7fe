"""Both dashboards hold every line of the metrics file, also after an interrupt."""

from __future__ import annotations

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mara_ray.config import TrackingConfig, load_config
from mara_ray.errors import UserError
from mara_ray.experiments.tracking import tracked, wandb_mode


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
        with tracked(config, tmp_path, "predictor", {"fm": metrics}):
            for step in steps:
                with open(metrics, "a") as file:
                    file.write(json.dumps({"step": step, "loss": 1.0 / (step + 1)}) + "\n")
                if step == 2 and steps.start == 0:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage(range(5))
    stage(range(3, 5))
    board = EventAccumulator(str(tmp_path / "tracking" / "tensorboard" / "predictor"))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("fm/loss")] == [
        (step, pytest.approx(1.0 / (step + 1))) for step in range(5)
    ]


def test_wandb_offline_run_is_written_in_the_run_directory(tmp_path) -> None:
    config = load_config("quick", ["tracking.wandb=offline"])
    with tracked(config, tmp_path, "curves", {}) as summary:
        summary["accepted"] = 3
    files = list((tmp_path / "tracking" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 1
    assert files[0].stat().st_size > 0
