"""The transformer: rollout and training agree, and every joint action is a matching."""

import itertools

import numpy as np
import pytest
import torch

from mara_ray.allocator.mat.features import CONTEXT_FEATURES, NODE_FEATURES, SLOT_FEATURES
from mara_ray.allocator.mat.network import MAT, MOST_TRACED, NetworkShape

SIZES = [(4, 8), (3, 5), (8, 4), (1, 3), (2, 2)]  # nodes, slots


def make_network(imposed_order, seed=0, num_blocks=1):
    torch.manual_seed(seed)
    network = MAT(NetworkShape(16, 2, num_blocks, imposed_order))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return network


def make_features(num_rows, num_nodes, num_slots, seed=0, fill=0.7):
    generator = torch.Generator().manual_seed(seed)
    active_BK = torch.rand(num_rows, num_slots, generator=generator) < fill
    order_BK = torch.where(active_BK, torch.rand(num_rows, num_slots, generator=generator), 2.0).argsort(1)
    return {
        "slot": torch.randn(num_rows, num_slots, SLOT_FEATURES, generator=generator) * active_BK[..., None],
        "node": torch.randn(num_rows, num_nodes, NODE_FEATURES, generator=generator),
        "context": torch.randn(num_rows, CONTEXT_FEATURES, generator=generator),
        "rank": torch.where(active_BK, order_BK.argsort(1), num_slots),
        "serving": torch.randint(0, num_slots + 1, (num_rows, num_nodes), generator=generator),
    }


@pytest.mark.parametrize("imposed_order", [True, False])
@pytest.mark.parametrize(("num_nodes", "num_slots"), SIZES)
@pytest.mark.parametrize("num_blocks", [1, 2])
def test_rollout_and_training_log_probabilities_agree(imposed_order, num_nodes, num_slots, num_blocks):
    network = make_network(imposed_order, num_blocks=num_blocks)
    features = make_features(300, num_nodes, num_slots)
    with torch.no_grad():
        decision = network.act(features, torch.rand(300, num_nodes))
        scored = network.evaluate(features, decision.action_BM)
    torch.testing.assert_close(decision.logp_BM, scored.logp_BM, atol=1e-5, rtol=0)
    torch.testing.assert_close(decision.value_B, scored.value_B, atol=1e-5, rtol=0)
    assert decision.logp_BM.exp().min() > 0


@pytest.mark.parametrize("imposed_order", [True, False])
@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(("num_nodes", "num_slots"), [(3, 5), (MOST_TRACED + 2, 30)])
def test_the_traced_decision_is_the_plain_one(imposed_order, greedy, num_nodes, num_slots):
    """For any number of rows after the first, and with weights that have changed since."""
    network = make_network(imposed_order)
    for num_rows in (1, 7, 30, 2):
        features = make_features(num_rows, num_nodes, num_slots, seed=num_rows)
        uniform_BM = None if greedy else torch.rand(num_rows, num_nodes)
        with torch.no_grad():
            network.pointer_query.weight.mul_(-1.1)
            plain = network.act(features, uniform_BM)
        traced = network.decide(features, uniform_BM)
        assert torch.equal(plain.action_BM, traced.action_BM)
        torch.testing.assert_close(plain.logp_BM, traced.logp_BM, atol=1e-6, rtol=0)
        torch.testing.assert_close(plain.value_B, traced.value_B, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("imposed_order", [True, False])
@pytest.mark.parametrize(("num_nodes", "num_slots"), SIZES)
@pytest.mark.parametrize("greedy", [True, False])
def test_every_joint_action_is_a_matching(imposed_order, num_nodes, num_slots, greedy):
    features = make_features(300, num_nodes, num_slots, seed=1)
    with torch.no_grad():
        uniform_BM = None if greedy else torch.rand(300, num_nodes)
        action_BM = make_network(imposed_order).act(features, uniform_BM).action_BM
    for action_M, rank_K in zip(action_BM.tolist(), features["rank"].tolist(), strict=True):
        slots = [action - 1 for action in action_M if action]
        active = [slot for slot, rank in enumerate(rank_K) if rank < num_slots]
        assert len(set(slots)) == len(slots) == min(num_nodes, len(active)), "idle only without a free task"
        assert set(slots) <= set(active)
        if imposed_order:
            ranks = [rank_K[slot] for slot in slots]
            assert ranks == sorted(ranks)


@pytest.mark.parametrize(("num_nodes", "num_tasks"), [(2, 4), (3, 5), (3, 3), (3, 2)])
def test_an_imposed_order_spreads_all_probability_over_the_subsets(num_nodes, num_tasks):
    """Each set of tasks is reached by exactly one joint action, and no other action has probability."""
    network, features = make_network(True), make_features(1, num_nodes, num_tasks + 1, fill=1.0)
    features["rank"] = torch.where(features["rank"] < num_tasks, features["rank"], num_tasks + 1)
    slot_of_rank = {rank: slot + 1 for slot, rank in enumerate(features["rank"][0].tolist())}
    num_served = min(num_nodes, num_tasks)
    total = 0.0
    for ranks in itertools.combinations(range(num_tasks), num_served):
        action = [slot_of_rank[rank] for rank in ranks] + [0] * (num_nodes - num_served)
        with torch.no_grad():
            total += float(network.evaluate(features, torch.tensor([action])).logp_BM.sum().exp())
    assert total == pytest.approx(1, abs=1e-5)


def test_without_an_order_all_permutations_share_the_probability():
    network, features = make_network(False), make_features(1, 2, 4, fill=1.0)
    actions = torch.tensor(list(itertools.permutations(range(1, 5), 2)))
    repeated = {name: part.expand(len(actions), *part.shape[1:]) for name, part in features.items()}
    with torch.no_grad():
        assert float(network.evaluate(repeated, actions).logp_BM.sum(1).exp().sum()) == pytest.approx(
            1, abs=1e-5
        )


@pytest.mark.parametrize("imposed_order", [True, False])
def test_empty_slots_are_never_looked_at(imposed_order):
    network, features = make_network(imposed_order), make_features(200, 3, 6, seed=2, fill=0.5)
    empty_BK = features["rank"] == 6
    disturbed = features | {"slot": torch.where(empty_BK[..., None], 1e3, features["slot"])}
    uniform_BM = torch.rand(200, 3)
    with torch.no_grad():
        calm, rough = network.act(features, uniform_BM), network.act(disturbed, uniform_BM)
    occupied_B = (~empty_BK).any(1)  # with no task at all there is nothing to look at but emptiness
    assert torch.equal(calm.action_BM, rough.action_BM)
    torch.testing.assert_close(calm.value_B[occupied_B], rough.value_B[occupied_B])


def test_slots_have_no_names():
    """Permuting the slots permutes the choice, and changes nothing else."""
    network, features = make_network(True), make_features(100, 3, 6, seed=3)
    shuffle_K = torch.tensor([3, 0, 5, 1, 4, 2])
    moved = features | {name: features[name][:, shuffle_K] for name in ("slot", "rank")}
    moved["serving"] = torch.where(
        features["serving"] > 0, shuffle_K.argsort()[features["serving"] - 1] + 1, features["serving"]
    )
    with torch.no_grad():
        before, after = network.act(features, None), network.act(moved, None)
    back_BM = torch.where(after.action_BM > 0, shuffle_K[after.action_BM - 1] + 1, 0)
    assert torch.equal(before.action_BM, back_BM)
    torch.testing.assert_close(before.value_B, after.value_B, atol=1e-5, rtol=1e-5)


def test_sampling_follows_the_probabilities():
    network, features = make_network(False), make_features(1, 1, 4, fill=1.0)
    repeated = {name: part.expand(4000, *part.shape[1:]) for name, part in features.items()}
    uniform_BM = (torch.arange(4000) + 0.5)[:, None] / 4000
    with torch.no_grad():
        action_BM = network.act(repeated, uniform_BM).action_BM
        logp_BM = network.evaluate(repeated, torch.arange(1, 5).repeat(1000)[:, None]).logp_BM
    share = np.bincount(action_BM[:, 0].numpy(), minlength=5)[1:] / 4000
    np.testing.assert_allclose(share, logp_BM[:4, 0].exp().numpy(), atol=1e-3)


def test_a_free_node_is_one_with_a_choice():
    network, features = make_network(True), make_features(1, 3, 4, fill=1.0)
    features["rank"] = torch.tensor([[0, 1, 2, 3]])
    with torch.no_grad():
        free_M = network.evaluate(features, torch.tensor([[2, 3, 4]])).free_BM[0]
    assert free_M.tolist() == [True, False, False], "after the second of four tasks the last two are left"
