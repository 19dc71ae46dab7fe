"""The trained policy as an allocator, and its files."""

import json

import numpy as np
import pytest
import torch

from mara_ray.allocator.mat.network import MAT, NetworkShape
from mara_ray.allocator.mat.policy import MATAllocator, is_trained
from mara_ray.allocator.protocol import Allocator
from mara_ray.errors import UserError
from tests.toy_worlds import random_observation


def make_allocator(imposed_order=True):
    torch.manual_seed(0)
    return MATAllocator(MAT(NetworkShape(16, 2, 1, imposed_order)), 5, {"forecast": "fm", "update": 3})


@pytest.mark.parametrize("imposed_order", [True, False])
def test_every_allocation_is_a_full_matching(imposed_order):
    allocator, rng = make_allocator(imposed_order), np.random.default_rng(0)
    assert isinstance(allocator, Allocator)
    for _ in range(30):
        observation = random_observation(rng, 8, 4, 8, 8)
        action_BM = allocator.allocate(observation)
        assert action_BM.dtype == np.int64
        for action_M, active_K in zip(action_BM, observation.active_BK, strict=True):
            slots = action_M[action_M > 0]
            assert len(set(slots)) == len(slots) == min(4, active_K.sum())
            assert active_K[slots - 1].all()


def test_a_task_that_is_served_again_keeps_its_node():
    allocator, rng = make_allocator(), np.random.default_rng(1)
    for _ in range(30):
        observation = random_observation(rng, 8, 4, 8, 8)
        action_BM = allocator.allocate(observation)
        for action_M, held_M in zip(action_BM, observation.node_slot_BM, strict=True):
            for node, slot in enumerate(held_M):
                assert slot == 0 or slot not in action_M or action_M[node] == slot


def test_files_round_trip(tmp_path):
    allocator = make_allocator()
    allocator.save(tmp_path)
    assert is_trained(tmp_path)
    loaded = MATAllocator.load(tmp_path)
    assert loaded.facts == allocator.facts
    observation = random_observation(np.random.default_rng(2), 32, 4, 8, 8)
    np.testing.assert_array_equal(loaded.allocate(observation), allocator.allocate(observation))


def test_damage_is_named(tmp_path):
    make_allocator().save(tmp_path)
    weights, facts = tmp_path / "policy.safetensors", tmp_path / "policy.json"
    whole, shape = weights.read_bytes(), json.loads(facts.read_text())
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"policy\.safetensors is damaged"):
        MATAllocator.load(tmp_path)
    weights.write_bytes(whole)
    shape["shape"]["width"] = 32
    facts.write_text(json.dumps(shape))
    with pytest.raises(UserError, match=r"policy\.safetensors is damaged"):
        MATAllocator.load(tmp_path)
    del shape["shape"]["width"]
    facts.write_text(json.dumps(shape))
    with pytest.raises(UserError, match=r"policy\.json is damaged"):
        MATAllocator.load(tmp_path)
    facts.unlink()
    with pytest.raises(UserError, match="missing"):
        MATAllocator.load(tmp_path)
