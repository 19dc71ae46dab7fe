"""The methods that can be compared, by name: an allocator and the predictor that feeds it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from mara_ray.allocator.lara import LARA
from mara_ray.allocator.protocol import Allocator
from mara_ray.allocator.queueing import EDF, FIFO
from mara_ray.config import Rival
from mara_ray.errors import UserError

RIVALS = get_args(Rival)  # predictors that can feed an allocator, too


@dataclass(frozen=True)
class Method:
    """How a method decides.

    Attributes:
        forecast: the predictor whose forecasts it sees.
        make: makes its allocator; None if it is a trained policy, which there is one of per training seed.
    """

    forecast: str
    make: Callable[[], Allocator] | None


METHODS = {
    "mara": Method("fm", None),
    "mara_wls": Method("wls", None),
    "lara_fm": Method("fm", LARA),
    "lara": Method("wls", LARA),
    "edf": Method("wls", EDF),
    "fifo": Method("wls", FIFO),
    "oracle_online": Method("oracle", LARA),
    **{f"mara_{rival}": Method(rival, None) for rival in RIVALS},
    **{f"lara_{rival}": Method(rival, LARA) for rival in RIVALS},
}


def method_named(name: str) -> Method:
    """Look a method up.

    Raises:
        UserError: there is none of this name.
    """
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1, cutoff=0.0)[0]
        raise UserError(
            f"evaluation.methods: {name!r} is unknown; the nearest is {near!r} of {', '.join(METHODS)}"
        )
    return METHODS[name]
