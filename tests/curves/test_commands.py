"""`mara curves import` and `mara curves show`, as a user types them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mara_ray.cli import main
from mara_ray.curves.bank import CurveBank


def typed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `mara curves ...`."""
    monkeypatch.setattr(sys, "argv", ["mara", "curves", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "curves.csv"
    lines = [f"{name},{step},{1 / (1 + 0.1 * step)}" for name in ("a", "b") for step in range(50)]
    path.write_text("\n".join(["curve,step,loss", *lines]))
    return path


def test_imported_curves_can_be_shown(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bank.parquet"
    assert typed(monkeypatch, "import", str(table), "--out", str(out), "--name", "ours", "--set", "vit") == 0
    printed, said = capsys.readouterr()
    assert said == "import: 2 curves, 2 of them accepted as learning; 2 resampled from 50-50 points to 300\n"
    assert printed == f"bank: {out}\n"
    assert CurveBank.read(out).curve_id.tolist() == ["ours/a", "ours/b"]

    picture = tmp_path / "curves.png"
    assert typed(monkeypatch, "show", str(out), "--out", str(picture), "--json") == 0
    counts = json.loads(capsys.readouterr().out)["configurations"]["ours"]
    assert counts["set"] == "vit" and counts["accepted"] == 2 and counts["status"] == {"ok": 2}
    assert counts["quantiles"]["first_loss"] == [1.0, 1.0, 1.0]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert typed(monkeypatch, "show", str(out), "--out", str(picture)) == 0
    assert "ours" in capsys.readouterr().out


def test_what_is_there_is_not_written_over(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table.read_bytes()
    assert typed(monkeypatch, "import", str(table), "--out", str(table)) == 2
    assert capsys.readouterr().err == f"error: --out: {table} exists; choose another, or delete it\n"
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "gone.parquet"], "gone.parquet is missing; give the path of a Parquet file, or `standard`"),
        (["import", "gone.csv", "--out", "new.parquet"], "import: gone.csv is missing"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and message in said
