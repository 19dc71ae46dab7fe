"""What the transformer reads: the urgency order by hand, and numbers that stay within bounds."""

from dataclasses import replace

import numpy as np
import pytest

from mara_ray.allocator.mat.features import encode, service_index, urgency_rank
from mara_ray.simulator.decisions import at_rows
from tests.toy_worlds import random_observation


def hand_made(**changes):
    """One episode: an unforecast task, two feasible ones, a hopeless one and an empty slot."""
    observation = random_observation(np.random.default_rng(0), 1, 2, 5, 1)
    active = np.array([[True, True, True, True, False]])
    values = {
        "time_B": np.array([10], np.int32),
        "active_BK": active,
        "task_BK": np.array([[0, 1, 2, 3, -1]], np.int32),
        "num_seen_BK": np.array([[9, 8, 2, 7, 0]], np.int32),
        "deadline_BK": np.array([[60, 60, 60, 15, 0]], np.int32),
        "remaining_BKN": np.array([[[30], [20], [298], [6], [0]]], np.float32),
        "node_slot_BM": np.array([[1, 0]], np.int32),
    }
    return replace(observation, **(values | changes))


def test_urgency_order_by_hand():
    assert urgency_rank(hand_made()).tolist() == [[2, 1, 0, 3, 5]]


def test_service_index_by_hand():
    samples = np.zeros((1, 5, 2), np.float32)
    samples[0, :4] = [[10, 40], [20, 20], [298, 298], [6, 8]]
    index_K = service_index(hand_made(remaining_BKN=samples))[0]
    # Task 0 by step 10: half the chance for 10 steps; by step 40: all of it for (10 + 40) / 2.
    np.testing.assert_allclose(index_K[:3], [max(0.5 / 10, 1 / 25), 1 / 20, 0])
    assert index_K[3] == 0, "5 steps are left, 6 are needed"


def test_equal_forecasts_are_ordered_by_task():
    same = np.full((1, 5, 1), 7, np.float32)
    ranks = urgency_rank(hand_made(remaining_BKN=same, num_seen_BK=np.full((1, 5), 9, np.int32)))
    assert ranks.tolist() == [[0, 1, 2, 3, 5]]


@pytest.mark.parametrize("num_samples", [1, 8])
def test_features_are_finite_and_empty_slots_are_zero(num_samples):
    rng = np.random.default_rng(1)
    for _ in range(20):
        observation = random_observation(rng, 16, 4, 8, num_samples)
        features = encode(observation)
        for part in features.values():
            assert np.isfinite(part).all()
        assert np.abs(features["slot"]).max() < 50
        assert not features["slot"][~observation.active_BK].any()
        assert (np.sort(features["rank"], 1)[observation.active_BK.sum(1) == 8] == np.arange(8)).all()


def test_rows_are_encoded_as_in_the_whole():
    observation = random_observation(np.random.default_rng(2), 16, 4, 8, 8)
    rows = np.array([3, 11])
    whole, part = encode(observation), encode(at_rows(observation, rows))
    for name in whole:
        np.testing.assert_array_equal(whole[name][rows], part[name])
