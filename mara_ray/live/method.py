"""The allocator of a live run by its name, and the predictor that feeds it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from mara_ray import pretrained, progress
from mara_ray.allocator.mat.policy import MATAllocator, is_trained, located_policies
from mara_ray.allocator.methods import METHODS
from mara_ray.allocator.protocol import Allocator
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.experiments.comparison import policy_name
from mara_ray.predictor.flow import FlowPredictor
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.predictor.protocol import Predictor
from mara_ray.predictor.rivals import make_rival
from mara_ray.predictor.weights import located_predictor


@dataclass(frozen=True)
class LiveMethod:
    """Who decides, and from which forecasts."""

    name: str
    allocator: Allocator
    predictor: Predictor


def check_name(name: str, option: str = "--allocator") -> None:
    """Refuse a name that is no method, or one that is told the future.

    Raises:
        UserError: with the nearest that there is.
    """
    known = sorted(known for known, method in METHODS.items() if method.forecast != "oracle")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise UserError(f"{option}: {name!r} is unknown; the nearest is {near!r} of {', '.join(known)}")


def live_method(name: str, predictor: Path, policies: Path) -> LiveMethod:
    """Load a method.

    Args:
        name: in `METHODS`.
        predictor: folder of the flow-matching predictor; `standard` is the one that ships.
        policies: folder of a run's policies, or of one policy alone; `standard` has those that ship.

    Raises:
        UserError: it is unknown, or a folder does not hold what is needed.
    """
    check_name(name)
    method = METHODS[name]
    if method.make is not None:
        return LiveMethod(name, method.make(), _predictor(method.forecast, predictor))
    folder = located_policies(policies)
    if not is_trained(folder):
        folder = folder / policy_name(name, 0)
    if not is_trained(folder):
        raise UserError(
            f"--policies: {folder} holds no policy of {name}; give the folder `allocator` of a run, or"
            " choose a method that is not trained"
        )
    return LiveMethod(name, MATAllocator.load(folder), _predictor(method.forecast, predictor))


def _predictor(name: str, folder: Path) -> Predictor:
    if name == "wls":
        return WLSPredictor()
    flow = FlowPredictor.load(located_predictor(folder))
    if name == "fm":
        return flow
    config = load_config("standard", [f"predictor.trained={folder}"])
    rival = make_rival(
        name, flow, config.predictor, CurveBank.read(pretrained.BANK), config.seed, pretrained.RIVALS / name,
        progress.silent,
    )  # fmt: skip
    assert isinstance(rival, Predictor)
    return rival
