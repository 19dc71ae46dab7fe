"""A run's storage beyond this machine: any path that pyarrow or fsspec can open, such as s3://bucket/run.

A run works in a local directory; its folders are copied to the storage and back. A folder in the storage
holds the same files as the local one, under the same names, and an index of their hashes, which is written
last: a file appears whole or not at all, the index names only files that are there, and only what changed is
copied.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from mara_ray.artifacts import PART, file_hash, hash_of, written_whole
from mara_ray.background import every
from mara_ray.errors import MachineError, UserError

INDEX_FILE = ".files.json"
COPIES_AT_ONCE = 8
COPY_BYTES = 1 << 22
REPEAT_SECONDS = 15.0


@dataclass(frozen=True)
class Storage:
    """A folder at a URI; opened when first used, in each process anew.

    Every method raises MachineError if the storage cannot be reached, and UserError if its URI means nothing
    to pyarrow and fsspec.
    """

    uri: str

    def send(self, local: Path, folder: str) -> None:
        """Make `folder` in the storage what the local folder is."""
        here = _hashes(local)
        with self._access() as (filesystem, base):
            there = self._index(folder)
            changed = [name for name, value in here.items() if there.get(name) != value]
            _all_at_once(lambda name: _put(filesystem, local / name, base / folder / name), changed)
            if here != there:
                self.write(f"{folder}/{INDEX_FILE}", json.dumps(here, sort_keys=True).encode())
            for name in there.keys() - here.keys():
                with contextlib.suppress(FileNotFoundError):
                    filesystem.delete_file(str(base / folder / name))

    def fetch(self, local: Path, folder: str, below: str = "") -> None:
        """Make the local folder, or what is `below` a folder of it, what `folder` is in the storage."""
        with self._access() as (filesystem, base):
            there = {name: value for name, value in self._index(folder).items() if name.startswith(below)}
            here = {name: value for name, value in _hashes(local).items() if name.startswith(below)}
            changed = [name for name, value in there.items() if here.get(name) != value]
            _all_at_once(lambda name: _get(filesystem, base / folder / name, local / name), changed)
        for name in here.keys() - there.keys():
            (local / name).unlink(missing_ok=True)

    def delete(self, folder: str) -> None:
        """Delete a folder, the index first; nothing happens if there is none."""
        self.remove(f"{folder}/{INDEX_FILE}")
        with self._access() as (filesystem, base), contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(str(base / folder))

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens if there is none."""
        with self._access() as (filesystem, base), contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(str(base / name))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        with self._access() as (filesystem, base):
            if filesystem.get_file_info(str(base / name)).type != pafs.FileType.File:
                return None
            with filesystem.open_input_stream(str(base / name)) as stream:
                return stream.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        with self._access() as (filesystem, base), _written(filesystem, base / name) as stream:
            stream.write(content)

    def for_ray(self) -> dict[str, Any]:
        """The arguments of Ray's RunConfig by which Train and Tune keep their files here."""
        with self._access() as (filesystem, base):
            return {"storage_path": str(base), "storage_filesystem": filesystem}

    def _index(self, folder: str) -> dict[str, str]:
        content = self.read(f"{folder}/{INDEX_FILE}")
        return json.loads(content) if content else {}

    @contextmanager
    def _access(self) -> Iterator[tuple[pafs.FileSystem, PurePosixPath]]:
        try:
            yield _open(self.uri)
        except OSError as error:
            reason = (str(error).splitlines() or [""])[0]
            raise MachineError(
                f"storage: {self.uri} cannot be used ({reason}); run again when it can"
            ) from error


def is_uri(location: str) -> bool:
    """Whether a location is a storage's URI, and no local path."""
    return "://" in location


def folder_of_node(storage: Storage) -> Path:
    """Where the tasks of this node keep their copies of a storage's folders."""
    return Path(tempfile.gettempdir()) / f"mara_ray-{os.getuid()}" / hash_of(storage.uri)


def fetch_to_node(storage: Storage, folders: dict[str, str]) -> Path:
    """Fetch folders (with what to take below each; all if empty), once for all tasks of this node.

    Returns:
        The directory that holds them.
    """
    directory = folder_of_node(storage)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder, below in folders.items():
            storage.fetch(directory / folder, folder, below)
    return directory


@contextmanager
def repeated(action: Callable[[], None]) -> Iterator[None]:
    """Repeat an action while the block runs, and do it at the end in any case.

    One that fails in between is only tried again; at the end of a block that did not fail, its error is
    raised.
    """

    def attempt() -> None:
        with contextlib.suppress(MachineError, OSError):
            action()

    try:
        with every(REPEAT_SECONDS, attempt):
            yield
    except BaseException:
        attempt()
        raise
    action()


@lru_cache
def _open(uri: str) -> tuple[pafs.FileSystem, PurePosixPath]:
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except ValueError:  # no scheme of pyarrow's
        import fsspec

        try:
            opened, path = fsspec.core.url_to_fs(uri)
        except (ValueError, ImportError) as error:
            raise UserError(f"storage: {uri!r} cannot be opened ({error}); check the URI") from error
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(opened))
    return filesystem, PurePosixPath(path)


def _hashes(folder: Path) -> dict[str, str]:
    """The hash of every file below a folder, but of those still being written."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if any(part.endswith(PART) for part in name.parts):
            continue
        with contextlib.suppress(FileNotFoundError):  # replaced or removed meanwhile
            if path.is_file():
                found[name.as_posix()] = file_hash(path)
    return found


def _all_at_once(copy: Callable[[str], None], names: list[str]) -> None:
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        list(pool.map(copy, sorted(names)))


@contextmanager
def _written(filesystem: pafs.FileSystem, path: PurePosixPath) -> Iterator[Any]:
    """Yield a stream to a temporary file beside `path`; move it into place on success."""
    filesystem.create_dir(str(path.parent), recursive=True)
    temporary = str(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{PART}"))
    try:
        with filesystem.open_output_stream(temporary) as stream:
            yield stream
        filesystem.move(temporary, str(path))
    except BaseException:
        with contextlib.suppress(Exception):
            filesystem.delete_file(temporary)
        raise


def _put(filesystem: pafs.FileSystem, local: Path, path: PurePosixPath) -> None:
    try:
        content = local.open("rb")
    except FileNotFoundError:  # removed meanwhile
        return
    with content, _written(filesystem, path) as stream:
        shutil.copyfileobj(content, stream, COPY_BYTES)


def _get(filesystem: pafs.FileSystem, path: PurePosixPath, local: Path) -> None:
    with (
        written_whole(local) as temporary,
        filesystem.open_input_stream(str(path)) as stream,
        temporary.open("wb") as content,
    ):
        shutil.copyfileobj(stream, content, COPY_BYTES)
