"""Toy worlds with hand-computed answers, for the tests of simulator and allocators."""

import numpy as np

from mara_ray.curves.bank import first_crossing, smooth
from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import PADDING, Workload


def halving_replay(length=12):
    """One curve 1, 1/2, 1/4, ...; target level g is met at point g + 2, the last level never."""
    ema_CL = (0.5 ** np.arange(length, dtype=np.float32))[None]
    target_CG = np.append(ema_CL[:, 1:], np.float32(1e-6))[None]
    return CurveReplay(ema_CL, target_CG, first_crossing(ema_CL, target_CG))


def one_episode(*tasks):
    """A workload of one episode from (arrival, deadline, level) triples, all on curve 0."""
    arrival_BJ, deadline_BJ, level_BJ = np.array(tasks, np.int32).T[:, None]
    curve_BJ = np.zeros_like(arrival_BJ)
    return Workload(arrival_BJ, deadline_BJ, curve_BJ, level_BJ, np.array([len(tasks)], np.int32))


def random_replay(rng, num_curves=5, length=14, num_levels=4):
    """Noisy falling curves, with their raw losses."""
    raw_CL = np.exp(np.cumsum(rng.normal(-0.3, 0.5, (num_curves, length)), axis=1)).astype(np.float32)
    ema_CL = smooth(raw_CL)
    # Some targets lie above the untrained loss, some below all that the curve reaches.
    target_CG = (ema_CL[:, :1] * np.exp(rng.uniform(-3, 0.1, (num_curves, num_levels)))).astype(np.float32)
    return CurveReplay(ema_CL, target_CG, first_crossing(ema_CL, target_CG), raw_CL)


def random_workload(rng, replay, num_episodes, num_tasks, steps):
    """Episodes of 0..num_tasks tasks, often with several at step 0."""
    num_curves, num_levels = replay.target_CG.shape
    shape = (num_episodes, num_tasks)
    arrival_BJ = rng.integers(0, steps, shape)
    arrival_BJ[:, : rng.integers(num_tasks)] = 0  # initial tasks
    arrival_BJ.sort(axis=1)
    deadline_BJ = arrival_BJ + rng.integers(1, steps, shape)  # some are after T
    columns = [
        arrival_BJ,
        deadline_BJ,
        rng.integers(num_curves, size=shape),
        rng.integers(num_levels, size=shape),
    ]
    num_tasks_B = rng.integers(0, num_tasks + 1, num_episodes)
    padding_BJ = np.arange(num_tasks) >= num_tasks_B[:, None]
    arrival_BJ, deadline_BJ, curve_BJ, level_BJ = (
        np.where(padding_BJ, PADDING, column).astype(np.int32) for column in columns
    )
    return Workload(arrival_BJ, deadline_BJ, curve_BJ, level_BJ, num_tasks_B.astype(np.int32))


class ZeroForecasts:
    """A forecast table that knows nothing."""

    def lookup(self, curve, num_seen, level):
        return np.zeros((*curve.shape, 2), np.float32)


class PrefixForecasts:
    """A forecast table that is a fixed function of the seen losses, and that never says more than the cap."""

    def __init__(self, ema_CL):
        self.ema_CL = ema_CL

    def lookup(self, curve, num_seen, level):
        length = self.ema_CL.shape[1]
        seen = np.arange(length) < num_seen[..., None]
        digest = np.floor(1000 * (self.ema_CL[curve] * seen).sum(-1)) + 7 * level
        return np.minimum(digest % 60, length - num_seen)[..., None].astype(np.float32)


def random_observation(rng, num_episodes, num_nodes, num_slots, num_samples, steps=200, cap=300):
    """Any state that an allocator might meet: slots empty or not, nodes that hold a task or not."""
    shape = (num_episodes, num_slots)
    active_BK = rng.random(shape) < rng.random()
    time_B = np.full(num_episodes, rng.integers(steps), np.int32)
    arrival_BK = rng.integers(0, time_B[:, None] + 1, shape)
    window_BK = rng.integers(1, 1 + rng.integers(2, 60), shape)
    seen_BK = rng.integers(1, 20, shape)
    remaining_BKN = np.sort(rng.integers(0, 60, (*shape, num_samples)), axis=2)
    never_BK1 = (rng.random(shape) < 0.2)[..., None]
    remaining_BKN = np.where(never_BK1, cap - seen_BK[..., None], remaining_BKN)
    task_BK = np.argsort(np.argsort(arrival_BK, axis=1), axis=1)
    held_BM = np.zeros((num_episodes, num_nodes), np.int32)
    for held_M, active_K in zip(held_BM, active_BK, strict=True):
        slots = rng.permutation(np.flatnonzero(active_K) + 1)[: rng.integers(num_nodes + 1)]
        held_M[rng.permutation(num_nodes)[: len(slots)]] = slots[:num_nodes]

    def integers(values_BK):
        return (values_BK * active_BK).astype(np.int32)

    losses_3BK = (np.array([0.5, 1.0, 0.25])[:, None, None] * active_BK).astype(np.float32)
    return Observation(
        time_B=time_B,
        active_BK=active_BK,
        task_BK=np.where(active_BK, task_BK, -1).astype(np.int32),
        num_seen_BK=integers(seen_BK),
        loss_BK=losses_3BK[0],
        initial_loss_BK=losses_3BK[1],
        target_BK=losses_3BK[2],
        progress_BK=losses_3BK[0],
        arrival_BK=integers(arrival_BK),
        deadline_BK=integers(time_B[:, None] + window_BK),
        remaining_BKN=(remaining_BKN * active_BK[..., None]).astype(np.float32),
        node_slot_BM=held_BM,
        node_speed_M=np.ones(num_nodes, np.float32),
        num_waiting_B=np.zeros(num_episodes, np.int32),
        episode_steps=steps,
        cap_points=cap,
    )
