"""The methods that can be compared, by name: an allocator and the predictor that feeds it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import get_args

from mara_ray.allocator.chance import Random
from mara_ray.allocator.demand import LLF, SRPT
from mara_ray.allocator.laira import LaiRA
from mara_ray.allocator.lara import LARA
from mara_ray.allocator.planner import Planner
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
        sparse: a policy that is trained on completions alone, without the log-progress potential.
    """

    forecast: str
    make: Callable[[], Allocator] | None
    sparse: bool = False


# What each kind of allocator is called when it is fed by flow matching, and how it is made.
FED = {"lara_fm": LARA, "srpt": SRPT, "llf": LLF, "planner": Planner}
FED_BY_RIVALS = {name.removesuffix("_fm"): make for name, make in FED.items()}

METHODS = {
    "mara": Method("fm", None),
    "mara_wls": Method("wls", None),
    "mara_sparse": Method("fm", None, sparse=True),
    "mara_oracle": Method("oracle", None),
    "lara": Method("wls", LARA),
    "lara_fixed": Method("wls", partial(LARA, explore_all_first=True)),
    "lara_fm_fixed": Method("fm", partial(LARA, explore_all_first=True)),
    "edf": Method("wls", EDF),
    "fifo": Method("wls", FIFO),
    "laira": Method("wls", LaiRA),
    "random": Method("wls", Random),
    "oracle_online": Method("oracle", LARA),
    **{name: Method("fm", make) for name, make in FED.items()},
    **{f"oracle_{name}": Method("oracle", make) for name, make in FED_BY_RIVALS.items() if name != "lara"},
    **{f"mara_{rival}": Method(rival, None) for rival in RIVALS},
    **{f"{name}_{rival}": Method(rival, make) for name, make in FED_BY_RIVALS.items() for rival in RIVALS},
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


def overrides_for(names: list[str]) -> list[str]:
    """Settings under which these methods are compared, and no more is trained and forecast than they need.

    Raises:
        UserError: there is no method of such a name.
    """
    chosen = {name.strip(): method_named(name.strip()) for name in names}
    rivals = sorted({method.forecast for method in chosen.values()} & set(RIVALS))
    learned = [name for name, method in chosen.items() if method.make is None]
    return [
        f"evaluation.methods=[{', '.join(chosen)}]",
        f"evaluation.rivals=[{', '.join(rivals)}]",
        f"allocator.policies=[{', '.join(learned)}]",
    ]
