"""The stress test and traces, played by a run's methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mara_ray import pretrained
from mara_ray.allocator.methods import overrides_for
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.evaluation.metrics import bound_rows
from mara_ray.experiments.comparison import Arena, Cell, cell_bounds, draw_cell, workload_path
from mara_ray.experiments.playing import play_stage, play_workload
from mara_ray.experiments.run import Run
from mara_ray.predictor.forecast import ForecastTable, OraclePredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import silent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with the test curves that ship and their WLS forecasts; nothing is trained."""
    shipped = CurveBank.read(pretrained.BANK)
    rows = shipped.rows("id", "test")
    bank = shipped.take(rows)
    run = Run(load_config("quick", overrides_for(["fifo", "edf", "lara"])), tmp_path_factory.mktemp("run"))
    bank.write(run.folder("curves") / "bank.parquet")
    target_CG = bank.target_losses(run.config.workload.target_fractions)
    for predictor in (WLSPredictor(), OraclePredictor()):
        folder = run.folder("forecasts") / predictor.name
        ForecastTable.build(predictor, bank, target_CG, folder, silent)
    return run


def test_the_stress_test(run: Run) -> None:
    rows = play_workload(run, "stress", 1.0)
    completed = rows.groupby("method")["completed"].agg(["min", "max"])
    assert completed.loc[["fifo", "edf"]].to_numpy().max() == 0
    assert (
        completed.loc[["oracle_online", "clairvoyant", "independent"]].to_numpy().tolist() == [[13, 13]] * 3
    )
    assert (rows["tasks"] == 20).all()


def test_its_family_and_the_sample_trace(run: Run) -> None:
    for source in ("stress:0.5", "sample"):
        rows = play_workload(run, source, 300.0)
        means = rows.groupby("method")["completed"].mean()
        assert means["fifo"] <= means["clairvoyant"] <= means["independent"] and means["clairvoyant"] > 0


def test_what_is_no_workload_is_told(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^workload: 'stress:many' is not stress:SHARE"):
        play_workload(run, "stress:many", 1.0)
    with pytest.raises(UserError, match=r"^trace: .* is missing; give the path of a CSV file"):
        play_workload(run, str(tmp_path / "none.csv"), 1.0)


def test_bounds_are_solved_once_for_what_they_depend_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pool again reads what was solved; other noise is another question."""
    cell, solved = Cell("id", 0.04, 0), []
    config = run.config.model_copy(
        update={"evaluation": run.config.evaluation.model_copy(update={"episodes_per_root": 2})}
    )
    run = Run(config, run.directory)
    workload = draw_cell(config, Arena.load(run).bank, cell)
    workload.save(workload_path(run, cell))

    def counted(*arguments: Any, **settings: Any) -> Any:
        solved.append(settings)
        return bound_rows(*arguments, **settings)

    monkeypatch.setattr("mara_ray.experiments.comparison.bound_rows", counted)
    noisy = config.model_copy(update={"simulator": config.simulator.model_copy(update={"loss_noise": 2.0})})
    found = [cell_bounds(Arena.load(Run(c, run.directory)), cell, workload) for c in (config, config, noisy)]
    assert len(solved) == 2
    assert found[0].equals(found[1]) and not found[0].equals(found[2])


def test_a_stage_of_several_workloads(run: Run) -> None:
    stage = play_stage(("stress", "stress:0.5"))
    summary = stage.work(run, silent)
    rows = pd.read_parquet(run.folder("play") / "episodes.parquet")
    assert list(rows["workload"].unique()) == ["stress", "stress:0.5"]
    assert (rows.groupby("workload")["tasks"].max() == 20).all()
    assert summary["completed/fifo"] == rows[rows["method"] == "fifo"]["completed"].mean()
    assert stage.settings(run.config) != play_stage(("stress",)).settings(run.config)
