"""The paper's figures, and what is put beside them."""

from __future__ import annotations

from pathlib import Path

from mara_ray.evaluation.paper import PAPER, PaperFigure
from mara_ray.evaluation.paper_tables import ours, paper_tables
from mara_ray.evaluation.run_results import RunResults

RUN = RunResults.read(Path(__file__).parents[2] / "docs" / "results" / "pretrained")
STRESS = {"mara": {"completion": 64.8, "low": 64.5, "high": 65.0}}


def test_the_figures_agree_with_one_another() -> None:
    """Printed levels and differences, each rounded to two digits, fit together."""
    level = {
        f.name: f.value for group in PAPER.values() for f in group if f.kind == "level" and f.load == "0.04"
    }
    for figure in (f for group in PAPER.values() for f in group):
        assert figure.place
        if figure.kind == "difference" and figure.where == "mean" and figure.upto is None:
            first, second = figure.name.split("-")
            assert abs(level[first] - level[second] - figure.value) < 0.0151, figure


def test_every_figure_of_a_comparison_finds_ours() -> None:
    missing = [
        figure
        for group in PAPER.values()
        for figure in group
        if figure.kind != "stress" and ours(figure, RUN, {}) is None
    ]
    assert missing == []


def test_ours_by_kind() -> None:
    versus = RUN.predictors["versus_wls"]["fm"]["id"]
    value, (low, high) = ours(PaperFigure(-52.1, "p", "error", "fm", "id"), RUN, {})
    assert value == -versus["mae_reduction_percent"] and low < value < high
    assert ours(PaperFigure(65.0, "p", "stress", "mara"), RUN, STRESS) == (64.8, (64.5, 65.0))
    assert ours(PaperFigure(65.0, "p", "stress", "edf"), RUN, STRESS) is None
    tables = {table.title: table for table in paper_tables(RUN)}
    assert "The stress test" not in tables and len(tables) == len(PAPER) - 1
    row = tables["Completion"].rows[0]
    level = RUN.summary["methods"]["mara"]["mean"]["completion"]
    assert row.name == "MARA, %" and [c.value for c in row.cells[:2]] == ["63.46", f"{level:.1f}"]
