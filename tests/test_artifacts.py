"""Files appear whole or not at all; seeds do not depend on order."""

from __future__ import annotations

import os

import pytest

from mara_ray.artifacts import file_hash, read_json, remove_parts, write_json, written_whole
from mara_ray.errors import UserError
from mara_ray.seeding import generator, seed_integer


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), written_whole(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_folder_is_replaced_whole(tmp_path) -> None:
    folder = tmp_path / "f"
    for content in ("one", "two"):
        with written_whole(folder) as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content)
    assert os.listdir(folder) == ["two"]


def test_hash_of_a_folder_sees_names_and_bytes(tmp_path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a").write_text("x")
    first = file_hash(tmp_path / "f")
    (tmp_path / "f" / "a").rename(tmp_path / "f" / "b")
    assert file_hash(tmp_path / "f") != first


def test_damaged_and_missing_json_are_named(tmp_path) -> None:
    with pytest.raises(UserError, match="missing"):
        read_json(tmp_path / "no.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match=r"bad\.json is damaged"):
        read_json(tmp_path / "bad.json")


def test_streams_are_apart_and_repeatable() -> None:
    assert generator(0, "curves", 1).random() == generator(0, "curves", 1).random()
    numbers = {seed_integer(seed, "curves", name) for seed in (0, 1) for name in ("a", "b", 0, 1)}
    assert len(numbers) == 8


def test_what_killed_writers_left_is_removed(tmp_path) -> None:
    (tmp_path / "a" / ".f.0a1b2c3d.part").mkdir(parents=True)
    (tmp_path / "a" / ".g.0a1b2c3d.part").write_text("half")
    (tmp_path / "a" / "whole").write_text("whole")
    remove_parts(tmp_path)
    assert os.listdir(tmp_path / "a") == ["whole"]
