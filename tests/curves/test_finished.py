"""Finished trainings are kept whole: damaged ones count as not there, compacted ones as there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from mara_ray.config import CurvesConfig
from mara_ray.curves import finished
from mara_ray.curves.candidates import Candidate, make_candidate
from mara_ray.curves.finished import FinishedTrainings

CONFIG = CurvesConfig(configurations={"img_mlp": 5}, length_points=20)


def candidate(number: int, config: CurvesConfig = CONFIG) -> Candidate:
    return make_candidate("img_mlp", number, config, seed=1)


def part_of(number: int) -> dict:
    raw = [1.0 / (point + 1 + number) for point in range(20)]
    return {"candidate": asdict(candidate(number)), "raw": raw, "status": "ok", "cpu_s": 0.5, "place": "here"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = FinishedTrainings(tmp_path)
    for number in range(6):
        store.add(part_of(number))
    return tmp_path


def kept(directory: Path) -> list[int]:
    store = FinishedTrainings(directory)
    return [number for number in range(6) if store.get(candidate(number)) == part_of(number)]


def test_what_is_added_is_there_and_there_again(directory: Path) -> None:
    assert kept(directory) == [0, 1, 2, 3, 4, 5]


def test_damaged_parts_count_as_not_there(directory: Path) -> None:
    first, second, third, fourth, fifth, _ = sorted((directory / "parts").iterdir())
    first.write_bytes(first.read_bytes()[:300])
    second.write_bytes(b"")
    third.write_bytes(third.read_bytes().replace(b"0.", b"1.", 1))
    fourth.write_bytes(b"\xff\xfe\x00")
    fifth.unlink()
    assert kept(directory) == [5]


def test_parts_of_other_settings_are_not_used(directory: Path) -> None:
    longer = CONFIG.model_copy(update={"length_points": 24})
    assert FinishedTrainings(directory).get(candidate(0, longer)) is None


def test_compacted_parts_are_there_and_more_can_follow(directory: Path) -> None:
    store = FinishedTrainings(directory)
    store.compact()
    assert list((directory / "parts").iterdir()) == []
    assert kept(directory) == [0, 1, 2, 3, 4, 5]
    store.add({**part_of(5), "cpu_s": 9.0})
    assert FinishedTrainings(directory).get(candidate(5))["cpu_s"] == 9.0, "the later one counts"
    FinishedTrainings(directory).compact()
    assert [path.name for path in sorted((directory / "finished").iterdir())] == [
        "0000.parquet",
        "0001.parquet",
    ]
    assert FinishedTrainings(directory).get(candidate(5))["cpu_s"] == 9.0
    store.compact()
    assert len(list((directory / "finished").iterdir())) == 2, "nothing loose, nothing written"


def test_many_parts_are_compacted_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished, "PARTS_PER_FILE", 4)
    store = FinishedTrainings(tmp_path)
    for number in range(6):
        store.add(part_of(number))
    assert len(list((tmp_path / "parts").iterdir())) == 2
    assert kept(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_a_damaged_file_of_parts_costs_only_itself(directory: Path) -> None:
    FinishedTrainings(directory).compact()
    store = FinishedTrainings(directory)
    store.add({**part_of(2), "cpu_s": 1.0})
    path = directory / "finished" / "0000.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    store = FinishedTrainings(directory)
    assert store.get(candidate(0)) is None and store.get(candidate(2))["cpu_s"] == 1.0
