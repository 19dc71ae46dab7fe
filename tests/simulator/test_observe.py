import dataclasses

import numpy as np

from mara_ray.config import SimulatorConfig
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.observe import observe
from tests.toy_worlds import ZeroForecasts, halving_replay, one_episode


class SeenForecasts:
    """Answers with what it was asked."""

    def lookup(self, curve, num_seen, level):
        return np.stack([num_seen, level + 100], axis=-1).astype(np.float32)


def test_what_is_observed():
    simulator = Simulator(SimulatorConfig(num_nodes=2, num_slots=3), 20, halving_replay())
    simulator.reset(one_episode((0, 9, 3), (0, 8, 2), (1, 30, 4)))
    simulator.step(np.array([[2, 0]]))
    observation = observe(simulator, SeenForecasts())
    assert observation.time_B.tolist() == [1]
    assert observation.active_BK.tolist() == [[True, True, True]]
    assert observation.task_BK.tolist() == [[0, 1, 2]]
    assert observation.num_seen_BK.tolist() == [[1, 2, 1]]
    assert observation.loss_BK.tolist() == [[1.0, 0.5, 1.0]]
    assert observation.initial_loss_BK.tolist() == [[1.0, 1.0, 1.0]]
    assert observation.target_BK.tolist() == [[1 / 16, 1 / 8, 1 / 32]]
    np.testing.assert_allclose(observation.progress_BK, [[0, 1 / 3, 0]], rtol=1e-6)
    assert observation.arrival_BK.tolist() == [[0, 0, 1]]
    assert observation.deadline_BK.tolist() == [[9, 8, 20]]
    assert observation.remaining_BKN.tolist() == [[[1, 103], [2, 102], [1, 104]]]
    assert observation.node_slot_BM.tolist() == [[2, 0]]
    assert observation.num_waiting_B.tolist() == [0]
    assert (observation.episode_steps, observation.cap_points) == (20, 12)


def test_an_empty_slot_shows_nothing():
    simulator = Simulator(SimulatorConfig(num_nodes=1, num_slots=2), 20, halving_replay())
    simulator.reset(one_episode((3, 9, 3)))
    observation = observe(simulator, SeenForecasts())
    for field in dataclasses.fields(observation):
        if "_BK" in field.name:
            expected = -1 if field.name == "task_BK" else 0
            assert (getattr(observation, field.name) == expected).all(), field.name


def test_the_types_are_as_documented():
    simulator = Simulator(SimulatorConfig(), 20, halving_replay())
    simulator.reset(one_episode((0, 9, 3)))
    observation = observe(simulator, ZeroForecasts())
    single = {"loss_BK", "initial_loss_BK", "target_BK", "progress_BK", "remaining_BKN", "node_speed_M"}
    for field in dataclasses.fields(observation):
        value = getattr(observation, field.name)
        if isinstance(value, np.ndarray) and field.name != "active_BK":
            assert value.dtype == (np.float32 if field.name in single else np.int32), field.name


def test_an_observation_does_not_change_when_the_simulator_moves_on():
    simulator = Simulator(SimulatorConfig(num_nodes=1, num_slots=2), 20, halving_replay())
    simulator.reset(one_episode((0, 9, 3)))
    observation = observe(simulator, ZeroForecasts())
    before = {name: np.copy(value) for name, value in vars(observation).items()}
    simulator.step(np.array([[1]]))
    for name, value in vars(observation).items():
        assert np.array_equal(value, before[name]), name
