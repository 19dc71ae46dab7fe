"""Files that appear whole or not at all, and the hashes that say what was built from what."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mara_ray.errors import MachineError, UserError

PART = ".part"  # ends the name of a file that is still being written


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` (a file or a folder); rename it into place on success.

    Raises:
        UserError: the directory cannot be written.
        MachineError: the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if temporary.is_file():
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
    except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        raise UserError(
            f"output: {path} cannot be written ({error.strerror}); choose another with --out"
        ) from error
    except OSError as error:
        if error.errno == 28:
            raise MachineError(f"output: no space left for {path}; free some and run again") from error
        raise
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove what killed writers left unfinished below a folder."""
    for path in list(folder.rglob(f".*{PART}")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON with sorted keys, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError(f"file: {path} is missing; run the stage that makes it") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"file: {path} is damaged ({error}); delete it and run again") from error


def hash_of(*parts: Any) -> str:
    """A stable 16-digit hash of JSON-like parts."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_hash(path: Path) -> str:
    """A 16-digit hash of a file's bytes, or of all files below a folder, in sorted order."""
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            digest.update(file.relative_to(path).as_posix().encode())
        with open(file, "rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()[:16]
