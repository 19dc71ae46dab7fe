"""The rows that a cell ends in, where they are not episodes."""

from __future__ import annotations

from pathlib import Path

from mara_ray.artifacts import write_json
from mara_ray.config import load_config
from mara_ray.experiments.grid import Grid
from mara_ray.experiments.run import Run
from mara_ray.experiments.sweep import rows_of


def test_errors_of_forecasts(tmp_path: Path) -> None:
    change = {
        "mae_reduction_percent": 50.0,
        "success_gain_points": 4.0,
        "ci": [45.0, 55.0],
        "success_ci": [3, 5],
    }
    evaluation = {
        "predictors": {"wls": {"id": {"capped_mae": 80.0}}, "fm": {"id": {"capped_mae": 40.0}}},
        "versus_wls": {"fm": {"id": change}},
    }
    run = Run(load_config("quick"), tmp_path)
    write_json(run.folder("forecasts") / "evaluation.json", evaluation)
    rows = rows_of(run, Grid(kind="forecasts", name="g", about="a test", preset="quick"))
    fm, wls = rows.to_dict("records")
    assert (wls["predictor"], wls["set"], wls["capped_mae"]) == ("wls", "id", 80.0)
    assert [fm[name] for name in ("capped_mae", "mae_reduction_percent", "mae_reduction_low")] == [40, 50, 45]
    assert wls["mae_reduction_percent"] != wls["mae_reduction_percent"], "WLS is not compared with itself"
    assert (fm["mae_reduction_high"], fm["success_gain_low"], fm["success_gain_high"]) == (55, 3, 5)
