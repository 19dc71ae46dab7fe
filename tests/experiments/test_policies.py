"""Which policies a run trains, and taking them from another run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mara_ray import pretrained
from mara_ray.allocator.mat.network import MAT, NetworkShape
from mara_ray.allocator.mat.policy import WEIGHTS_FILE, MATAllocator
from mara_ray.artifacts import file_hash, read_json
from mara_ray.commands.options import SHIPPED
from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.experiments.checks import check_config
from mara_ray.experiments.comparison import allocators, policy_metrics, policy_names
from mara_ray.experiments.policies import make_policies
from mara_ray.experiments.run import Run
from mara_ray.progress import silent

BANK = ("curves.bank=standard", "predictor.trained=standard")


def test_names_are_of_methods_and_seeds() -> None:
    config = load_config("quick", ["allocator.policies=[mara, mara_sparse]", "allocator.num_seeds=2"])
    assert policy_names(config) == ["mara-seed0", "mara-seed1", "mara_sparse-seed0", "mara_sparse-seed1"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("allocator.policies=[mara, mara_wls, fifo]", "'fifo' is a rule"),
        ("allocator.policies=[mara]", "'mara_wls' needs a trained policy"),
        ("allocator.policies=[mara, mara_wls, mara_quantile]", "add it to evaluation.rivals"),
        ("allocator.trained=nowhere", "nowhere"),
    ],
)
def test_what_cannot_be_is_told(override: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_config(load_config("quick", [*BANK, override]))


def test_policies_of_another_run_are_taken(tmp_path: Path) -> None:
    torch.manual_seed(0)
    policy = MATAllocator(MAT(NetworkShape(16, 2, 1, True)), 20, {"update": 3})
    policy.save(tmp_path / "theirs" / "mara-seed0")
    (tmp_path / "theirs" / "mara-seed0" / "metrics.jsonl").write_text('{"step": 1}\n')
    overrides = [f"allocator.trained={tmp_path / 'theirs'}", "allocator.policies=[mara]"]
    config = load_config("quick", [*BANK, *overrides, "evaluation.methods=[mara, lara]"])
    check_config(config)
    run = Run(config, tmp_path / "ours")
    assert make_policies(run, silent) == {"policies": 1}
    assert policy_metrics(run)["mara-seed0"].read_text() == '{"step": 1}\n'
    ((seed, taken),) = allocators(run, "mara")
    assert isinstance(taken, MATAllocator) and (seed, taken.facts["update"]) == (0, 3)
    for name, tensor in policy.network.state_dict().items():
        assert torch.equal(tensor, taken.network.state_dict()[name])


def test_the_policies_that_ship_are_those_of_their_manifest() -> None:
    manifest = read_json(pretrained.POLICIES / "manifest.json")
    config = load_config("standard", list(SHIPPED))
    check_config(config)
    assert set(manifest["hashes"]) == set(policy_names(config)) and config.allocator.num_seeds >= 3
    for name, stated in manifest["hashes"].items():
        assert file_hash(pretrained.POLICIES / name / WEIGHTS_FILE) == stated
        facts = MATAllocator.load(pretrained.POLICIES / name).facts
        assert facts["bank_hash"] == CurveBank.read(pretrained.BANK).content_hash
    made_with = manifest["config"]["allocator"]
    ours = config.allocator.model_dump(mode="json")
    differ = {name for name, value in ours.items() if value != made_with[name]}
    assert differ <= {"trained", "policies"}, "the preset no longer says how what ships was trained"
