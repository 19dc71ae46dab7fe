"""A folder in a storage is what the local one is; files there appear whole."""

from __future__ import annotations

import pytest

from mara_ray.errors import UserError
from mara_ray.storage import INDEX_FILE, Storage


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_folders_are_copied_there_and_back(tmp_path, kind) -> None:
    storage = Storage("memory://runs/a" if kind == "memory" else f"file://{tmp_path}/there")
    here, again = tmp_path / "here", tmp_path / "again"
    (here / "deep").mkdir(parents=True)
    (here / "a").write_text("1")
    (here / "deep" / "b").write_text("2")
    (here / ".c.0a1b2c3d.part").write_text("half")
    storage.send(here, "stage")
    storage.fetch(again, "stage")
    found = {p.relative_to(again).as_posix(): p.read_text() for p in again.rglob("*") if p.is_file()}
    assert found == {"a": "1", "deep/b": "2"}
    (here / "a").unlink()
    (here / "deep" / "b").write_text("3")
    storage.send(here, "stage")
    assert storage.read("stage/a") is None
    storage.fetch(again, "stage")
    assert not (again / "a").exists() and (again / "deep" / "b").read_text() == "3"
    storage.delete("stage")
    assert storage.read(f"stage/{INDEX_FILE}") is None


def test_a_uri_that_means_nothing() -> None:
    with pytest.raises(UserError, match="'nowhere://x' cannot be opened"):
        Storage("nowhere://x").read("a")
