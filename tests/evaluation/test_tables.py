from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.table import Table

from mara_ray.errors import UserError
from mara_ray.evaluation.tables import completion_table, predictor_table, summarise

HASHES = {"bank": "b0", "predictor": "p0", "allocator": "a0", "workloads": "w0"}
SHARES = {"mara": 0.65, "lara": 0.5, "lara_fm": 0.6, "mara_wls": 0.6, "fifo": 0.2, "clairvoyant": 0.8}


def make_rows(num_seeds: int = 2, num_roots: int = 3, per_root: int = 10) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for set_name in ("id", "rl", "vit"):
        tasks = rng.integers(15, 25, (num_roots, per_root))
        luck = rng.normal(0, 0.05, (num_roots, per_root))
        for method, share in SHARES.items():
            trained = method.startswith("mara")
            for seed in range(num_seeds) if trained else [-1]:
                for root in range(num_roots):
                    for episode in range(per_root):
                        n = int(tasks[root, episode])
                        rows.append(
                            {
                                "method": method,
                                "set": set_name,
                                "load": 0.04,
                                "root": root,
                                "training_seed": seed,
                                "episode": episode,
                                "tasks": n,
                                "completed": round(n * (share + luck[root, episode])),
                            }
                        )
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return make_rows()


@pytest.fixture(scope="module")
def summary(rows: pd.DataFrame) -> dict:
    return summarise(rows, 0.04, HASHES, resamples=400, seed=0)


def test_form_is_that_of_the_design(summary: dict) -> None:
    assert {"load", "episodes", "methods", "differences", "bounds", "gap_closed", "hashes"} <= set(summary)
    assert set(summary["methods"]) == set(SHARES) - {"clairvoyant"}
    assert set(summary["bounds"]) == {"clairvoyant"}
    assert set(summary["methods"]["mara"]) == {"id", "rl", "vit", "mean"}
    assert set(summary["methods"]["mara"]["id"]) == {"completion", "ci"}
    assert set(summary["differences"]["mara-lara"]["mean"]) == {"points", "ci", "p", "p_holm"}
    assert set(summary["differences"]) == {
        "mara-lara", "mara-lara_fm", "mara-mara_wls", "mara-fifo", "lara_fm-lara", "mara_wls-lara",
    }  # fmt: skip
    assert summary["hashes"] == HASHES
    json.dumps(summary, allow_nan=False)


def test_values_by_hand(summary: dict, rows: pd.DataFrame) -> None:
    part = rows[(rows.method == "mara") & (rows.set == "rl")]
    expected = 100 * part.completed.sum() / part.tasks.sum()
    assert summary["methods"]["mara"]["rl"]["completion"] == pytest.approx(expected, abs=1e-3)
    mara = summary["methods"]["mara"]
    mean = np.mean([mara[name]["completion"] for name in ("id", "rl", "vit")])
    assert mara["mean"]["completion"] == pytest.approx(mean, abs=2e-3)
    level = {m: summary["methods"][m]["id"]["completion"] for m in ("mara", "lara")}
    assert summary["differences"]["mara-lara"]["id"]["points"] == pytest.approx(
        level["mara"] - level["lara"], abs=2e-3
    )
    top = summary["bounds"]["clairvoyant"]["id"]["completion"]
    share = (level["mara"] - level["lara"]) / (top - level["lara"])
    assert summary["gap_closed"]["mara"]["id"] == pytest.approx(share, abs=1e-3)


def test_intervals_hold_the_estimates_and_pairing_narrows_them(summary: dict) -> None:
    for group in (summary["methods"], summary["bounds"]):
        for by_set in group.values():
            for cell in by_set.values():
                assert cell["ci"][0] <= cell["completion"] <= cell["ci"][1]
    paired = summary["differences"]["mara-lara"]["id"]
    assert paired["ci"][0] <= paired["points"] <= paired["ci"][1]
    alone = summary["methods"]["mara"]["id"]["ci"]
    assert paired["ci"][1] - paired["ci"][0] < alone[1] - alone[0]
    assert paired["p"] < 0.01 and paired["p"] <= paired["p_holm"]


def test_same_seed_same_bytes_and_row_order_does_not_matter(summary: dict, rows: pd.DataFrame) -> None:
    again = summarise(rows.sample(frac=1, random_state=1), 0.04, HASHES, resamples=400, seed=0)
    assert json.dumps(again, sort_keys=True) == json.dumps(summary, sort_keys=True)


def test_missing_and_unpaired_episodes_are_refused(rows: pd.DataFrame) -> None:
    with pytest.raises(UserError, match="episodes are missing"):
        summarise(rows.drop(index=5), 0.04, HASHES, 10, 0)
    with pytest.raises(UserError, match="every set"):
        summarise(rows[(rows.method != "fifo") | (rows.set != "rl")], 0.04, HASHES, 10, 0)
    unpaired = rows.copy()
    unpaired.loc[5, "tasks"] += 1
    with pytest.raises(UserError, match="other episodes"):
        summarise(unpaired, 0.04, HASHES, 10, 0)
    with pytest.raises(UserError, match="was not evaluated; add"):
        summarise(rows, 0.07, HASHES, 10, 0)


def in_eighty_columns(table: Table) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_table_fits_eighty_columns(summary: dict) -> None:
    text = in_eighty_columns(completion_table(summary))
    for word in ("MARA-WLS", "RL-OOD", "clairvoyant", "2 training seed(s)"):
        assert word in text
    assert "…" not in text


def test_table_of_a_summary_read_back_is_the_same(summary: dict) -> None:
    sorted_keys = json.loads(json.dumps(summary, sort_keys=True))
    text = in_eighty_columns(completion_table(summary))
    assert in_eighty_columns(completion_table(sorted_keys)) == text
    assert text.index("MARA-WLS") < text.index("LARA-FM") < text.index("FIFO") < text.index("clairvoyant")


def test_predictor_table_shows_all_predictors() -> None:
    scores = {"capped_mae": 20.0, "success_accuracy": 0.8, "crps": 10.0, "coverage_90": 0.88}
    versus = {"mae_reduction_percent": 41.0, "success_gain_points": 5.0, "ci": [30.0, 50.0]}
    evaluation = {
        "predictors": {"fm": {"id": scores}, "wls": {"id": scores}},
        "versus_wls": {"fm": {"id": versus}},
    }
    text = in_eighty_columns(predictor_table(evaluation))
    assert "flow" in text and "[30.0,50.0]" in text
