"""An ablation of the predictor under Tune: trials are scored, and finished ones kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import ray

from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.experiments.ablation import run_ablation, trials_of
from mara_ray.experiments.grid import Ablation, read_sweep
from mara_ray.progress import silent

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def no_ray_afterwards() -> Iterator[None]:
    yield
    ray.shutdown()


def test_every_setting_is_tried_and_a_finished_grid_is_not_run_again(
    toy_bank: CurveBank, tmp_path: Path
) -> None:
    toy_bank.write(tmp_path / "bank.parquet")
    ablation = Ablation(
        kind="predictor_ablation",
        name="toy",
        about="a toy",
        preset=str(ROOT / "tests" / "tiny.yaml"),
        epochs=2,
        bank=tmp_path / "bank.parquet",
        sampler={"num_samples": [2, 4]},
        training={"horizon_bins": [4, 8]},
        train_curves=[6],
    )
    config = load_config(ablation.preset)
    rows = run_ablation(ablation, config, tmp_path / "out", silent)
    found = list(zip(rows["setting"], rows["value"], strict=True))
    assert found == [
        ("base", 0), ("horizon_bins", 4), ("num_samples", 2), ("num_samples", 4), ("train_curves", 6)
    ]  # fmt: skip
    assert rows["capped_mae"].between(1, 60).all() and rows["success_accuracy"].between(0.2, 1).all()
    assert rows.loc[1, "capped_mae"] != rows.loc[0, "capped_mae"]
    assert (tmp_path / "out" / "tracking" / "tensorboard" / "horizon_bins=4" / "predictor").is_dir()
    written = pd.read_parquet(tmp_path / "out" / "results.parquet")
    pd.testing.assert_frame_equal(run_ablation(ablation, config, tmp_path / "out", silent), written)


def test_the_shipped_grid_is_whole() -> None:
    ablation = read_sweep(ROOT / "tune_configs" / "predictor.yaml")
    assert isinstance(ablation, Ablation)
    names = [trial["name"] for trial in trials_of(ablation, load_config(ablation.preset))]
    assert names[0] == "base=0"
    assert "horizon_bins=32" not in names, "that is the preset's own"
    assert len(set(names)) == len(names)
