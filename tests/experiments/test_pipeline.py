"""Skipping, forcing, resuming and setting aside, on stages that only write a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mara_ray.config import load_config
from mara_ray.errors import UserError
from mara_ray.experiments.pipeline import Stage, config_parts, files, run_stages
from mara_ray.experiments.run import Run


class Recorder:
    """Two stages, `first` and `second`, that count how often they worked."""

    def __init__(self) -> None:
        self.worked: list[str] = []
        self.stages = (self._stage("first", (), "curves"), self._stage("second", ("first",), "workload"))

    def _stage(self, name: str, needs: tuple[str, ...], section: str) -> Stage:
        def work(run: Run, report) -> dict:
            self.worked.append(name)
            (run.folder(name) / "out").write_text(getattr(run.config, section).model_dump_json())
            return {}

        return Stage(name, needs, config_parts(section), files(f"{name}/out"), lambda run: {}, work)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def run_of(directory: Path, *overrides: str) -> Run:
    return Run(load_config("quick", ["tracking.wandb=disabled", *overrides]), directory)


def test_a_second_run_does_nothing_and_force_does_one_stage(tmp_path, recorder) -> None:
    run = run_of(tmp_path)
    assert run_stages(run, recorder.stages, "second") == ["first", "second"]
    assert run_stages(run, recorder.stages, "second") == []
    # The forced stage gives the same output, so what stands on it stays.
    assert run_stages(run, recorder.stages, "second", force=("first",)) == ["first"]


def test_a_changed_setting_redoes_only_what_depends_on_it(tmp_path, recorder) -> None:
    run_stages(run_of(tmp_path), recorder.stages, "second")
    assert run_stages(run_of(tmp_path, "workload.window_steps=99"), recorder.stages, "second") == ["second"]
    assert run_stages(run_of(tmp_path, "curves.length_points=50"), recorder.stages, "second") == [
        "first",
        "second",
    ]


def test_outputs_of_other_inputs_are_put_aside_and_come_back(tmp_path, recorder) -> None:
    run_stages(run_of(tmp_path), recorder.stages, "first")
    (tmp_path / "first" / "precious").write_text("hours of work")
    run_stages(run_of(tmp_path, "curves.length_points=50"), recorder.stages, "first")
    assert not (tmp_path / "first" / "precious").exists()
    run_stages(run_of(tmp_path), recorder.stages, "first")
    assert (tmp_path / "first" / "precious").read_text() == "hours of work"


def test_a_damaged_output_is_made_again(tmp_path, recorder) -> None:
    run_stages(run_of(tmp_path), recorder.stages, "second")
    (tmp_path / "first" / "out").write_text("damaged")
    assert run_stages(run_of(tmp_path), recorder.stages, "second") == ["first"]


def test_a_stage_that_died_runs_again_in_what_it_left(tmp_path) -> None:
    def work(run: Run, report) -> dict:
        left = run.folder("only") / "part"
        if not left.exists():
            left.write_text("half")
            raise RuntimeError("killed")
        (run.folder("only") / "out").write_text(left.read_text())
        return {}

    stages = (Stage("only", (), config_parts("curves"), files("only/out"), lambda run: {}, work),)
    with pytest.raises(RuntimeError):
        run_stages(run_of(tmp_path), stages, "only")
    assert run_stages(run_of(tmp_path), stages, "only") == ["only"]
    assert (tmp_path / "only" / "out").read_text() == "half"


def test_unknown_stage_busy_and_unwritable_directory(tmp_path, recorder) -> None:
    with pytest.raises(UserError, match="'thrid' is unknown; use one of first, second"):
        run_stages(run_of(tmp_path), recorder.stages, "second", force=("thrid",))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        run_stages(run_of(tmp_path / "file"), recorder.stages, "second")

    def work(run: Run, report) -> dict:
        run_stages(run_of(tmp_path), recorder.stages, "first")
        return {}

    stages = (Stage("only", (), config_parts("curves"), files(), lambda run: {}, work),)
    with pytest.raises(UserError, match="another run is at work"):
        run_stages(run_of(tmp_path), stages, "only")


def test_settings_see_only_their_paths() -> None:
    settings = config_parts("workload", "predictor.warmup_points")
    plain = settings(load_config("quick"))
    assert settings(load_config("quick", ["predictor.epochs=7"])) == plain
    assert settings(load_config("quick", ["predictor.warmup_points=7"])) != plain
    assert settings(load_config("quick", ["workload.window_steps=7"])) != plain
    assert settings(load_config("quick", ["seed=7"])) != plain
