"""A grid of predictor trainings under Tune: trials are scored, finished ones kept, bad grids refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import ray

from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.experiments.ablation import Ablation, read_ablation, run_ablation, trials_of

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
        name="toy",
        preset=str(ROOT / "tests" / "tiny.yaml"),
        epochs=2,
        bank=tmp_path / "bank.parquet",
        sampler={"num_samples": [2, 4]},
        training={"horizon_bins": [4, 8]},
        train_curves=[6],
    )
    rows = run_ablation(ablation, tmp_path / "out", 2)
    found = list(zip(rows["setting"], rows["value"], strict=True))
    assert found == [
        ("base", 0), ("horizon_bins", 4), ("num_samples", 2), ("num_samples", 4), ("train_curves", 6)
    ]  # fmt: skip
    assert rows["capped_mae"].between(1, 60).all() and rows["success_accuracy"].between(0.2, 1).all()
    assert rows.loc[1, "capped_mae"] != rows.loc[0, "capped_mae"]
    written = pd.read_parquet(tmp_path / "out" / "results.parquet")
    pd.testing.assert_frame_equal(run_ablation(ablation, tmp_path / "out", 2), written)


def test_the_shipped_grid_is_whole() -> None:
    ablation = read_ablation(ROOT / "tune_configs" / "predictor.yaml")
    trials = trials_of(ablation)
    assert trials[0] == {"setting": "base", "value": 0}
    assert {"setting": "horizon_bins", "value": 32.0} not in trials, "that is the preset's own"
    assert len({str(trial) for trial in trials}) == len(trials)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"is missing; there are some in tune_configs/"),
        ("a: [", r"is not YAML"),
        ("name: x", r"preset: field required; mend it"),
        (
            "name: x\npreset: quick\nepochs: 0\nsampler: {}\ntraining: {}\ntrain_curves: []",
            r"epochs: .*greater",
        ),
    ],
)
def test_bad_grids_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "grid.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_ablation(path)
