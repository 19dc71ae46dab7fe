"""The files that people write: YAML that holds a mapping of plain values."""

from __future__ import annotations

import json
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from mara_ray.errors import UserError


def read_mapping(path: Path | Traversable, field: str, remedy: str) -> dict[str, Any]:
    """Read a YAML file.

    Args:
        path: the file.
        field: what it is for, as error messages call it.
        remedy: what to do if it is missing or holds something else.

    Raises:
        UserError: it cannot be read, is no YAML, holds a date or the like, or no mapping; one line.
    """
    try:
        tree = yaml.safe_load(path.read_bytes())
        json.dumps(tree)
    except OSError as error:
        raise UserError(f"{field}: {path} cannot be read ({error.strerror}); {remedy}") from error
    except TypeError as error:
        raise UserError(f"{field}: {path} holds a date or the like ({error}); put it in quotes") from error
    except (
        yaml.YAMLError,
        ValueError,
    ) as error:  # ValueError: dates that there are not, bytes that are no text
        reason = " ".join(str(error).split())
        raise UserError(f"{field}: {path} is not valid YAML ({reason}); mend it") from error
    if not isinstance(tree, dict):
        raise UserError(f"{field}: {path} must hold a mapping; {remedy}")
    return tree
