"""The pages that ship say what the results that ship say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from mara_ray.errors import UserError
from mara_ray.evaluation.documents import TABLES, fill_pages, filled, pages
from mara_ray.evaluation.forecast_tables import ablation
from mara_ray.evaluation.markdown import fill, to_markdown
from mara_ray.evaluation.result_tables import Cell, ResultTable, Row, leads, leads_by_forecast
from mara_ray.evaluation.run_results import RunResults, SweepResults, keep_results

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.name)
def test_shipped_pages_are_what_the_shipped_results_give(page: Path) -> None:
    assert filled(ROOT, page) == page.read_text(encoding="utf-8"), "run `mara docs`"


def test_every_table_is_shown_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in pages(ROOT))
    assert {name for name in TABLES if f"<!-- results:begin {name} " in text} == set(TABLES)


def test_a_changed_result_changes_the_page_and_nothing_else(tmp_path: Path) -> None:
    results = tmp_path / "docs" / "results" / "quick"
    keep_results(ROOT / "docs" / "results" / "quick", results)
    text = "before\n<!-- results:begin completion quick -->\nold\n<!-- results:end -->\nafter\n"
    (tmp_path / "README.md").write_text(text)
    assert fill_pages(tmp_path) == {tmp_path / "README.md": True}
    assert fill_pages(tmp_path) == {tmp_path / "README.md": False}
    first = (tmp_path / "README.md").read_text()
    assert first.startswith("before\n") and first.endswith("\nafter\n") and "old" not in first
    summary = json.loads((results / "summary.json").read_text())
    summary["methods"]["mara"]["id"]["completion"] = 99.9
    (results / "summary.json").write_text(json.dumps(summary))
    assert fill_pages(tmp_path) == {tmp_path / "README.md": True}
    assert "| MARA | 99.9 [" in (tmp_path / "README.md").read_text()


def test_markdown_by_hand() -> None:
    rows = [Row("LARA", [Cell("+1.5", "[+1.0, +2.0]", claim=True)]), Row("optimum", [Cell()], True)]
    table = ResultTable("T", ["method", "lead"], rows, "Note.")
    lines = [
        "| method | lead |",
        "|---|---|",
        "| LARA | **+1.5** [+1.0,\u00a0+2.0] |",
        "| *optimum* |  |",
        "",
        "Note.",
    ]
    assert to_markdown(table) == "\n".join(lines)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- results:begin a b -->", "p: the last marked part is not closed"),
        ("x\n<!-- results:end -->", "p, line 2: '<!-- results:end -->' is out of place"),
        ("<!-- results:begin a b -->\n<!-- results:begin a b -->", "p, line 2"),
        ("<!-- results:begin a -->", "p, line 1"),
    ],
)
def test_markers_that_do_not_pair_up_are_told(page: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        fill(page, lambda table, source: "", "p")
    assert str(error.value).startswith(message)


def test_unknown_tables_and_missing_sources_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^docs: .* stand in a checkout"):
        fill_pages(tmp_path)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for part, message in (("levels quick", "'levels' is no table"), ("loads gone", "gone is missing")):
        (tmp_path / "README.md").write_text(f"<!-- results:begin {part} -->\n<!-- results:end -->\n")
        with pytest.raises(UserError, match=message):
            fill_pages(tmp_path)


def test_leads_of_a_sweep_are_the_same_from_its_rows_and_kept(tmp_path: Path) -> None:
    """Ten tasks an episode: LARA finishes 5 and FIFO 4, one less under the second cost."""
    rows = pd.DataFrame(
        [
            {
                "sweep": "costs", "cell": f"cost-{cost}", "switch_cost": cost, "method": method, "set": "id",
                "load": 0.04, "root": root, "episode": episode, "training_seed": -1, "tasks": 10,
                "completed": 5 if method == "lara" else 4 - cost,
            }
            for cost in (0, 1)
            for method in ("lara", "fifo")
            for root in range(2)
            for episode in range(3)
        ]
    )  # fmt: skip
    rows.attrs = {
        "sweep": "costs", "about": "costs", "kind": "evaluation", "axes": ["switch_cost"],
        "resamples": 50, "seed": 0,
    }  # fmt: skip
    (tmp_path / "sweep").mkdir()
    rows.to_parquet(tmp_path / "sweep" / "results.parquet")
    keep_results(tmp_path / "sweep", tmp_path / "kept")
    made, kept = (SweepResults.read(tmp_path / name) for name in ("sweep", "kept"))
    assert made == kept
    table = leads(kept)
    assert table.head == ["switch cost", "FIFO"]
    assert [(row.name, row.cells[0].value) for row in table.rows] == [
        ("0", "\u221210.0"),
        ("1", "\u221220.0"),
    ]


def test_leads_of_rules_by_forecast() -> None:
    """Every rule of the sweep is a column, however it is called when flow matching feeds it."""
    values = {
        "lara": 0.0,
        "lara_fm": 1.0,
        "lara_fm_prior": 2.0,
        "srpt": 3.0,
        "srpt_quantile": 4.0,
        "oracle_online": 9.0,
    }
    sweep = SweepResults(
        "grid", "rules", ["rule"],
        [
            {"method": name, "set": "mean", "lead": lead, "lead_low": lead - 1, "lead_high": lead + 1}
            for name, lead in values.items()
        ],
    )  # fmt: skip
    table = leads_by_forecast(sweep)
    assert table.head == ["forecasts", "LARA", "SRPT"]
    assert [(row.name, *(cell.value for cell in row.cells)) for row in table.rows] == [
        ("flow matching", "+1.0", "+3.0"),
        ("quantile GRU", "", "+4.0"),
        ("flow matching, prior first", "+2.0", ""),
    ]


def test_an_ablation_is_kept_and_shown(tmp_path: Path) -> None:
    scores = {"success_accuracy": 0.8, "crps": 27.25, "coverage_90": 0.744}
    rows = pd.DataFrame(
        [
            {"sweep": "p", "setting": name, "value": value, "train_cpu_s": 9.0, "capped_mae": error, **scores}
            for name, value, error in (
                ("train_curves", 400.0, 39.61), ("base", 0.0, 37.4), ("train_curves", 50.0, 43.0)
            )
        ]
    )  # fmt: skip
    rows.attrs = {"sweep": "p", "about": "parts", "kind": "predictor_ablation"}
    (tmp_path / "sweep").mkdir()
    rows.to_parquet(tmp_path / "sweep" / "results.parquet")
    keep_results(tmp_path / "sweep", tmp_path / "kept")
    table = ablation(json.loads((tmp_path / "kept" / "ablation.json").read_text()))
    shown = [(row.name, *(cell.value for cell in row.cells)) for row in table.rows]
    assert shown == [
        ("as shipped, but fewer epochs", "", "37.4", "80.0", "27.2", "74.4"),
        ("training curves", "50", "43.0", "80.0", "27.2", "74.4"),
        ("training curves", "400", "39.6", "80.0", "27.2", "74.4"),
    ]


def test_a_run_that_is_not_finished_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"summary\.json is missing"):
        RunResults.read(tmp_path)
