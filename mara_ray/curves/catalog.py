"""The model-dataset configurations by name; a new family is a new entry in `embedded` or `full_scale`."""

from __future__ import annotations

import difflib

from mara_ray.curves.configuration import Configuration
from mara_ray.curves.embedded import EMBEDDED
from mara_ray.curves.full_scale import FULL_SCALE
from mara_ray.errors import UserError

CONFIGURATIONS: dict[str, Configuration] = {entry.name: entry for entry in (*EMBEDDED, *FULL_SCALE)}


def configuration_named(name: str) -> Configuration:
    """Look a configuration up.

    Raises:
        UserError: there is none of this name.
    """
    if name not in CONFIGURATIONS:
        near = difflib.get_close_matches(name, CONFIGURATIONS, n=1, cutoff=0.0)[0]
        raise UserError(
            f"curves.configurations: {name!r} is unknown; the nearest is {near!r}"
            f" (there are {', '.join(CONFIGURATIONS)})"
        )
    return CONFIGURATIONS[name]
