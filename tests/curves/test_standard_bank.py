"""The bank that ships is whole, is what its manifest says, and is what today's code trains."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mara_ray import pretrained
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank, smooth
from mara_ray.curves.candidates import make_candidate, status_of
from mara_ray.curves.training import make_task

CONFIG = load_config("standard")


@pytest.fixture(scope="module")
def bank() -> CurveBank:
    return CurveBank.read(pretrained.BANK)


def test_it_holds_what_was_promised(bank: CurveBank) -> None:
    assert pretrained.BANK.stat().st_size <= 6_000_000
    accepted = {
        name: int(bank.accepted[bank.configuration == name].sum()) for name in set(bank.configuration)
    }
    assert accepted == CONFIG.curves.configurations
    by_set = {name: len(bank.rows(name)) for name in ("id", "vit", "rl")}
    assert by_set == {"id": 1600, "vit": 100, "rl": 100}
    assert bank.raw_CL.shape == (len(bank), 300)
    id_splits = bank.split[bank.rows("id")].tolist()
    assert [id_splits.count(name) for name in ("train", "validation", "test")] == [960, 240, 400]


def test_flags_and_smoothing_follow_from_the_points(bank: CurveBank) -> None:
    assert np.array_equal(bank.ema_CL, smooth(bank.raw_CL))
    finite = np.isin(bank.status, ("ok", "flat", "diverged"))
    assert [status_of(raw_L) for raw_L in bank.raw_CL[finite]] == bank.status[finite].tolist()


def test_the_manifest_is_of_this_bank(bank: CurveBank) -> None:
    manifest = json.loads(pretrained.BANK.with_name("manifest.json").read_text())
    assert manifest["bank_hash"] == bank.content_hash
    assert manifest["curves"] == len(bank)
    assert manifest["config"]["configurations"] == CONFIG.curves.configurations
    assert manifest["seed"] == CONFIG.seed


@pytest.mark.parametrize("name", CONFIG.curves.configurations)
def test_todays_code_trains_its_curves(bank: CurveBank, name: str) -> None:
    """The first points of a curve, but for what other processors round otherwise."""
    number = 3
    candidate = make_candidate(name, number, CONFIG.curves, CONFIG.seed)
    row = int(np.flatnonzero(bank.curve_id == candidate.curve_id)[0])
    assert bank.seed[row] == candidate.seed
    assert bank.hyperparameters_of(row) == candidate.hyperparameters
    task = make_task(name, candidate.hyperparameters, candidate.seed, candidate.batches_per_point)
    points = [task.initial_loss, *(task.run_block() for _ in range(5))]
    assert points == pytest.approx(bank.raw_CL[row, :6].tolist(), rel=1e-3)
