"""Nothing of the unseen future reaches an observation."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.allocator.lara import LARA
from mara_ray.allocator.queueing import EDF, FIFO
from mara_ray.config import SimulatorConfig
from mara_ray.curves.bank import NEVER
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.observe import observe
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import Workload
from tests.toy_worlds import PrefixForecasts

LENGTH, STEPS, NUM_TASKS = 30, 30, 8


def one_curve_each(rng):
    """Every task on a curve of its own, too demanding to be met, so that the future decides nothing yet."""
    ema_CL = np.exp(rng.uniform(-1, 0, (NUM_TASKS, LENGTH))).astype(np.float32)
    target_CG = np.full((NUM_TASKS, 1), 0.1, np.float32)
    arrival_BJ = np.sort(rng.integers(0, 12, (1, NUM_TASKS)), axis=1).astype(np.int32)
    deadline_BJ = arrival_BJ + rng.integers(5, 40, (1, NUM_TASKS)).astype(np.int32)
    curve_BJ = np.arange(NUM_TASKS, dtype=np.int32)[None]
    workload = Workload(arrival_BJ, deadline_BJ, curve_BJ, 0 * curve_BJ, np.array([NUM_TASKS], np.int32))
    return ema_CL, target_CG, workload


def play(allocator, ema_CL, target_CG, workload, until, noise):
    """The observations of steps 0..until, and the simulator at the end."""
    replay = CurveReplay(ema_CL, target_CG, np.full(target_CG.shape, NEVER, np.int32), raw_CL=ema_CL)
    simulator = Simulator(SimulatorConfig(num_nodes=2, num_slots=4, loss_noise=noise), STEPS, replay)
    simulator.reset(workload)
    table = PrefixForecasts(ema_CL)
    observations = [observe(simulator, table)]
    for _ in range(until):
        simulator.step(allocator.allocate(observations[-1]))
        observations.append(observe(simulator, table))
    return observations, simulator


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    until=st.integers(0, STEPS - 1),
    allocator=st.sampled_from([FIFO(), EDF(), LARA()]),
    noise=st.sampled_from([0.0, 0.3]),
)
def test_permuting_the_unseen_future_changes_no_observation(seed, until, allocator, noise):
    rng = np.random.default_rng(seed)
    ema_CL, target_CG, workload = one_curve_each(rng)
    before, simulator = play(allocator, ema_CL, target_CG, workload, until, noise)
    seen_C = np.ones(NUM_TASKS, int) + simulator.state.outcomes.service_BJ[0].astype(int)
    in_slot_K = simulator.state.slots.task[0]
    seen_C[in_slot_K[in_slot_K >= 0]] = simulator.state.slots.num_seen[0][in_slot_K >= 0]
    for task, seen in enumerate(seen_C):
        ema_CL[task, seen:] = rng.permutation(ema_CL[task, seen:])
    workload = change_arrivals_after(workload, until, rng)
    after, _ = play(allocator, ema_CL, target_CG, workload, until, noise)
    for old, new in zip(before, after, strict=True):
        for field in dataclasses.fields(old):
            assert np.array_equal(getattr(old, field.name), getattr(new, field.name)), field.name


def change_arrivals_after(workload, until, rng):
    """Other deadlines for the tasks that are yet to come."""
    later_BJ = workload.arrival_BJ > until
    deadline_BJ = workload.deadline_BJ + (later_BJ * rng.integers(1, 9, later_BJ.shape)).astype(np.int32)
    return dataclasses.replace(workload, deadline_BJ=deadline_BJ)
