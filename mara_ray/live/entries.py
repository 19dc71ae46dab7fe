"""Entries: from `module:name` or `file.py:name` to a task that runs block by block."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from mara_ray.learning_task import LearningTask


class GeneratorTask(LearningTask):
    """A generator that yields a loss a block. It has no state that could be moved; see `LearningTask`."""

    def __init__(self, losses: Iterator[float]) -> None:
        self._losses = losses

    def run_block(self) -> float:
        """Go on to the next yield.

        Raises:
            RuntimeError: the generator has ended.
        """
        for loss in self._losses:
            return float(loss)
        raise RuntimeError("the training loop ended before its target or its deadline; let it go on")


def check_entry(entry: str) -> str | None:
    """What is wrong with an entry, as far as can be seen without running it; None if nothing is."""
    place, _, name = entry.rpartition(":")
    if not place or not name.isidentifier():
        return "is not of the form module:name or file.py:name"
    if not place.endswith(".py"):
        try:
            found = importlib.util.find_spec(place)
        except (ImportError, ValueError):
            found = None
        return None if found else f"names no module that is installed ({place}); install it, or give a file"
    if not Path(place).is_file():
        return f"names no file ({place}); give its path from the jobs file"
    try:
        tree = ast.parse(Path(place).read_text())
    except (SyntaxError, UnicodeDecodeError) as error:
        return f"is no Python file ({error}); mend it"
    if name not in _names(tree):
        return f"names nothing that {place} defines; mend the part after the colon"
    return None


def _names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names


def make_entry(entry: str, arguments: Mapping[str, Any]) -> LearningTask:
    """Build the task of an entry; it must be a LearningTask, or a generator of losses.

    Raises:
        TypeError: it is neither.
    """
    place, _, name = entry.rpartition(":")
    module = _module_of(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    made = getattr(module, name)(**arguments)
    if isinstance(made, LearningTask):
        return made
    if isinstance(made, Iterator):
        return GeneratorTask(made)
    raise TypeError(
        f"{entry} made a {type(made).__name__}; let it be a mara_ray.LearningTask, or a generator that yields"
        " a loss a block"
    )


def _module_of(path: Path) -> ModuleType:
    """Import a file under a name of its own; modules beside it can be imported from it."""
    name = f"mara_live_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
