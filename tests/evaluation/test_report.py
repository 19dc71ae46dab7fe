from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_tables import HASHES, make_rows

from mara_ray.evaluation.diagnostics import MEASURES, diagnose
from mara_ray.evaluation.findings import established, findings
from mara_ray.evaluation.plots import Picture, completion_bars
from mara_ray.evaluation.report import Provenance, write_report
from mara_ray.evaluation.tables import summarise

VOID = {"meta", "link", "img"}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rows = make_rows()
    rng = np.random.default_rng(1)
    return rows.assign(**{measure: rng.uniform(0, 1, len(rows)) for measure in MEASURES})


@pytest.fixture(scope="module")
def summary(rows: pd.DataFrame) -> dict:
    return summarise(rows, 0.04, HASHES, resamples=200, seed=0)


def predictors() -> dict:
    scores = {"capped_mae": 20.0, "success_accuracy": 0.8, "crps": 10.0, "coverage_90": 0.88}
    versus = {"mae_reduction_percent": -4.0, "success_gain_points": 5.0, "ci": [-9.0, 1.0]}
    return {"predictors": {"fm": {"id": scores}, "wls": {"id": scores}}, "versus_wls": {"fm": {"id": versus}}}


class Page(HTMLParser):
    """Checks that tags nest, and collects what matters."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_report_is_one_whole_file_that_fetches_nothing(
    tmp_path: Path, summary: dict, rows: pd.DataFrame
) -> None:
    write_report(
        tmp_path / "report.html",
        title="run <quick>",
        summary=summary | {"diagnostics": diagnose(rows, 0.04, 100, 0)},
        predictors=predictors(),
        pictures=[completion_bars(summary), Picture("b", "B & b", "caption", 'alt "quoted"', b"png")],
        provenance=Provenance({"ray": "2.60.0"}, 7, {"name": "quick"}, {"curves": 12.4}),
    )
    html = (tmp_path / "report.html").read_text()
    page = Page(html)
    links = [value for _, attrs in page.attributes for key in ("src", "href") if (value := attrs.get(key))]
    assert links and all(link.startswith("data:") for link in links)
    markup = re.sub(r"data:image/png;base64,[^\"]*|http-equiv", "", html)
    assert "http" not in markup and "url(" not in markup and "<script" not in markup
    images = [attrs for tag, attrs in page.attributes if tag == "img"]
    assert len(images) == 2 and all(image["alt"] for image in images)
    assert any(attrs.get("name") == "viewport" for _, attrs in page.attributes)
    for fact in (
        "run <quick>",
        "B & b",
        "b0",
        "w0",
        "2.60.0",
        "12 s",
        "MARA-WLS",
        "clairvoyant",
        "\u22124.0",
    ):
        assert fact in page.text
    assert list(tmp_path.iterdir()) == [tmp_path / "report.html"]


def test_findings_say_what_the_table_says(summary: dict) -> None:
    text = " ".join(findings(summary))
    level = summary["methods"]["mara"]["mean"]["completion"]
    lead = summary["differences"]["mara-lara"]["mean"]["points"]
    assert f"MARA finished {level:.1f} %" in text
    assert f"{lead:.1f} points more than LARA" in text
    assert "2 trainings" in text and "open" not in text


def test_findings_claim_nothing_without_interval_and_corrected_p(summary: dict) -> None:
    unsure = copy.deepcopy(summary)
    unsure["differences"]["mara-lara"]["mean"] |= {"points": -0.5, "ci": [-2.0, 1.0], "p_holm": 0.6}
    unsure["differences"]["mara-fifo"]["mean"]["p_holm"] = 0.2
    unsure["differences"]["mara-lara_fm"]["mean"] |= {"points": -3.0, "ci": [-4.0, -2.0], "p_holm": 0.01}
    unsure["episodes"]["training_seeds"] = 1
    sentences = findings(unsure)
    text = " ".join(sentences)
    assert "Whether that is more or less than LARA is open" in text and "points more than LARA" not in text
    assert any(s.startswith("Open, ") and "FIFO" in s for s in sentences)
    assert any("behind LARA-FM" in s for s in sentences)
    assert "each policy was trained once" in text


def test_established_needs_both() -> None:
    assert established({"ci": [0.1, 2.0], "p_holm": 0.04})
    assert not established({"ci": [0.1, 2.0], "p_holm": 0.06})
    assert not established({"ci": [-0.1, 2.0], "p_holm": 0.01})


def test_diagnostics_are_equal_weight_means_with_intervals(rows: pd.DataFrame) -> None:
    table = diagnose(rows, 0.04, 200, 0)
    assert list(table)[:2] == ["mara", "lara"] and "clairvoyant" not in table
    part = rows[rows.method == "lara"]
    for measure, (_, factor) in MEASURES.items():
        cell = table["lara"][measure]
        assert cell["mean"] == pytest.approx(factor * part.groupby("set")[measure].mean().mean())
        assert cell["ci"][0] < cell["mean"] < cell["ci"][1]
