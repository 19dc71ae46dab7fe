from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.allocator.lara import LARA
from mara_ray.allocator.protocol import Allocator
from mara_ray.allocator.queueing import EDF, FIFO
from mara_ray.config import SimulatorConfig, WorkloadConfig
from mara_ray.curves.bank import NEVER, CurveBank
from mara_ray.evaluation.bounds import clairvoyant_optimum, unit_schedule
from mara_ray.evaluation.metrics import bound_rows, episode_rows, episode_tasks
from mara_ray.evaluation.rollout import Rollout, rollout
from mara_ray.predictor.forecast import OraclePredictor
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.losses import TaskLosses
from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import CurveReplay, Outcomes
from mara_ray.workload.episodes import Workload, draw_workload

STEPS = 60


class Oracle:
    """The true remaining steps."""

    def __init__(self, replay: CurveReplay):
        self.steps_CLGN = OraclePredictor().predict_curves(replay.ema_CL, replay.target_CG)

    def lookup(self, curve: np.ndarray, num_seen: np.ndarray, level: np.ndarray) -> np.ndarray:
        return self.steps_CLGN[curve, num_seen - 1, level].astype(np.float32)


class Table:
    """A forecast that says nothing."""

    def lookup(self, curve: np.ndarray, num_seen: np.ndarray, level: np.ndarray) -> np.ndarray:
        return np.zeros((*curve.shape, 1), np.float32)


class Shuffled:
    """Serves random tasks."""

    name = "random"

    def reset(self, num_episodes: int) -> None:
        self.rng = np.random.default_rng(0)

    def allocate(self, observation: Observation) -> np.ndarray:
        num_nodes = observation.node_slot_BM.shape[1]
        score_BK = np.where(observation.active_BK, self.rng.random(observation.active_BK.shape), -1.0)
        order_BM = np.argsort(-score_BK, axis=1)[:, :num_nodes]
        served_BM = np.take_along_axis(observation.active_BK, order_BM, 1)
        return np.where(served_BM, order_BM + 1, 0)


class Planned:
    """Follows a schedule of tasks, one episode."""

    name = "planned"

    def __init__(self, node_task_TM: np.ndarray):
        self.node_task_TM = node_task_TM

    def reset(self, num_episodes: int) -> None:
        assert num_episodes == 1

    def allocate(self, observation: Observation) -> np.ndarray:
        time = int(observation.time_B[0])
        slot_of = {int(task): slot + 1 for slot, task in enumerate(observation.task_BK[0]) if task >= 0}
        planned = self.node_task_TM[time] if time < len(self.node_task_TM) else []
        action_M = np.zeros(observation.node_slot_BM.shape[1], np.int64)
        for node, task in enumerate(planned):
            action_M[node] = slot_of[int(task)] if task >= 0 else 0
        return action_M[None]


@pytest.fixture(scope="module")
def replay(toy_bank: CurveBank) -> CurveReplay:
    return CurveReplay.from_bank(toy_bank, (0.3, 0.5, 0.7, 0.9, 1.05))


def draw(seed: int, load: float, num_episodes: int = 4) -> Workload:
    config = WorkloadConfig(episode_steps=STEPS, window_steps=20, target_fractions=(0.3, 0.5, 0.7, 0.9, 1.05))
    return draw_workload(config, np.arange(60), load, num_episodes, seed, "test")


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    load=st.sampled_from([0.1, 0.3]),
    num_nodes=st.integers(1, 3),
    noise=st.sampled_from([0.0, 0.3]),
)
def test_no_method_passes_the_bounds(
    replay: CurveReplay, seed: int, load: float, num_nodes: int, noise: float
) -> None:
    config = SimulatorConfig(num_nodes=num_nodes, num_slots=5, loss_noise=noise)
    workload = draw(seed, load)
    bounds = bound_rows(workload, replay, config, set_name="id", load=load, root=0, seconds=10.0)
    assert bounds["proven"].all()
    alone = bounds[bounds.method == "independent"]["completed"].to_numpy()
    optimum = bounds[bounds.method == "clairvoyant"]["completed"].to_numpy()
    assert (optimum <= alone).all() and (alone <= workload.num_tasks_B).all()
    methods: list[Allocator] = [FIFO(), EDF(), Shuffled(), LARA()]
    for method in methods:
        played = rollout(Simulator(config, STEPS, replay), Oracle(replay), method, workload)
        rows = episode_rows(played, method=method.name, set_name="id", load=load, root=0)
        assert (rows["completed"].to_numpy() <= optimum).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), load=st.sampled_from([0.1, 0.3]), num_nodes=st.integers(1, 3))
def test_the_optimum_replayed_in_the_engine_finishes_exactly_its_set(
    replay: CurveReplay, seed: int, load: float, num_nodes: int
) -> None:
    workload = draw(seed, load, num_episodes=1)
    tasks = episode_tasks(workload, TaskLosses.frozen(replay, workload).points_needed_BJ, 0)
    optimum = clairvoyant_optimum(tasks, np.ones(num_nodes), 10.0)
    schedule_TM = unit_schedule(tasks, optimum.chosen_J, num_nodes)
    enough = SimulatorConfig(num_nodes=num_nodes, num_slots=len(tasks.release_J) + 1)
    played = rollout(Simulator(enough, STEPS, replay), Table(), Planned(schedule_TM), workload)
    finished_J = played.outcomes.finished_BJ[0, : len(optimum.chosen_J)] >= 0
    assert (finished_J == optimum.chosen_J).all()


def one_curve(points: list[float], needed: list[int]) -> CurveReplay:
    ema_CL = np.array([points], np.float32)
    target_CG = np.array([[0.5] * len(needed)], np.float32)
    return CurveReplay(ema_CL, target_CG, np.array([needed], np.int32))


def as_workload(*tasks: tuple[int, int, int]) -> Workload:
    arrival, deadline, level = (np.array([column], np.int32) for column in zip(*tasks, strict=True))
    count = np.array([arrival.shape[1]], np.int32)
    return Workload(arrival, deadline, np.zeros_like(arrival), level, count)


def test_rows_by_hand() -> None:
    """One node, one slot, ten steps. Task 0 (3 steps of service) runs in steps 0-2 and is finished.

    Task 1 came at step 1, waits outside until 3, never finishes and leaves at its deadline 8 after 5
    steps of service. Task 2 came at step 7, gets the slot at 8 and has 2 steps until the end.
    """
    replay = one_curve(np.linspace(1.0, 0.1, 12).tolist(), needed=[4, int(NEVER), 12])
    workload = as_workload((0, 9, 0), (1, 8, 1), (7, 10, 2))
    config = SimulatorConfig(num_nodes=1, num_slots=1)
    played = rollout(Simulator(config, 10, replay), Table(), FIFO(), workload)
    assert played.node_task_TBM[:, 0, 0].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 2, 2]
    row = episode_rows(played, method="fifo", set_name="id", load=0.1, root=3).iloc[0]
    assert (row["tasks"], row["completed"], row["training_seed"], row["root"]) == (3, 1, -1, 3)
    assert row["utilisation"] == 1.0 and row["full_queue_fraction"] == 1.0
    assert row["waiting_tasks"] == pytest.approx((2 + 1) / 10)  # task 1 in steps 1-2, task 2 in step 7
    # Ready with 4 points: after 3 steps for task 0, at the end of step 5 for task 1; task 2 leaves before.
    assert row["readiness_delay"] == pytest.approx((3 + 5 + 3) / 3)
    assert row["wasted_service"] == pytest.approx(7 / 10)
    assert row["switches"] == 3 and row["migrations"] == 0


def test_migrations_by_hand() -> None:
    """Both tasks change places in the second step; the first, after a rest, goes back in the last."""
    workload = as_workload((0, 9, 0), (0, 9, 0))
    node_task_TBM = np.array([[[0, 1]], [[1, 0]], [[1, -1]], [[0, 1]]], np.int16)
    played = Rollout(workload, Outcomes.blank(1, 2), node_task_TBM)
    row = episode_rows(played, method="fifo", set_name="id", load=0.1, root=0).iloc[0]
    assert row["migrations"] == 2 + 0 + 2


def test_bound_rows_by_hand() -> None:
    replay = one_curve(np.linspace(1.0, 0.1, 12).tolist(), needed=[4, int(NEVER), 6])
    workload = as_workload((0, 3, 0), (0, 9, 1), (0, 5, 2))
    config = SimulatorConfig(num_nodes=1, num_slots=4)
    rows = bound_rows(workload, replay, config, set_name="id", load=0.1, root=0, seconds=5.0)
    assert rows.set_index("method")["completed"].to_dict() == {"independent": 2, "clairvoyant": 1}
    two_nodes = SimulatorConfig(num_nodes=2, num_slots=4)
    rows = bound_rows(workload, replay, two_nodes, set_name="id", load=0.1, root=0, seconds=5.0)
    assert rows.set_index("method")["completed"].to_dict() == {"independent": 2, "clairvoyant": 2}
