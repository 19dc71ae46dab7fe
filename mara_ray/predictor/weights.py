"""A trained predictor on disk: safetensors for its weights, JSON for its sizes and origin; no pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mara_ray import pretrained
from mara_ray.artifacts import hash_of, read_json, write_json, written_whole
from mara_ray.config import PredictorConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError

WEIGHTS_FILE, CONFIG_FILE = "weights.safetensors", "predictor.json"
REMEDY = "train it again with `mara predictor train`"

T = TypeVar("T")


def training_identity(config: PredictorConfig, bank: CurveBank, seed: int) -> str:
    """What a training depends on, as 16 digits: two with the same identity end with the same weights."""
    return hash_of(config.model_dump(mode="json", exclude={"trained"}), bank.content_hash, seed)


def located_predictor(folder: Path) -> Path:
    """The folder of a trained predictor; `standard` is the one that ships."""
    return pretrained.PREDICTOR if str(folder) == "standard" else folder


def save_weights(directory: Path, tensors: Mapping[str, Tensor], **facts: Any) -> None:
    """Write both files, each whole or not at all."""
    with written_whole(directory / WEIGHTS_FILE) as temporary:
        save_file(dict(tensors), temporary)
    write_json(directory / CONFIG_FILE, facts)


def load_weights(directory: Path, build: Callable[[dict[str, Any], dict[str, Tensor]], T]) -> T:
    """Read both files, and let `build` make a predictor of the facts and the tensors.

    Raises:
        UserError: a file is missing or damaged, or does not fit the other.
    """
    facts = read_json(directory / CONFIG_FILE)
    path = directory / WEIGHTS_FILE
    if not path.is_file():
        raise UserError(f"predictor: {path} is missing; {REMEDY}")
    try:
        tensors = load_file(path)
        predictor = build(facts, dict(tensors))
    except (SafetensorError, OSError, KeyError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise UserError(f"predictor: {path} is damaged ({reason}); {REMEDY}") from error
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise UserError(f"predictor: {path} holds weights that are not finite; {REMEDY}")
    return predictor
