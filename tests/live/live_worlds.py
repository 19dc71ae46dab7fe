"""Live runs in one process, and the same workload in the simulator."""

import json

import numpy as np

from mara_ray.allocator.mat.network import MAT, NetworkShape
from mara_ray.allocator.mat.policy import MATAllocator
from mara_ray.allocator.methods import METHODS
from mara_ray.config import CurvesConfig, SimulatorConfig
from mara_ray.curves.bank import CurveBank, smooth
from mara_ray.curves.candidates import make_candidate, train_candidate
from mara_ray.evaluation.rollout import rollout
from mara_ray.live.cluster import Request
from mara_ray.live.controller import Controller
from mara_ray.live.jobs import Job, Jobs
from mara_ray.live.journal import Journal
from mara_ray.live.method import LiveMethod
from mara_ray.live.node import Node
from mara_ray.live.states import States
from mara_ray.live.view import PlainView
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import padded

POINTS, STEPS = 24, 44
FRACTIONS = (0.3, 0.5, 0.7, 0.9, 1.05)
NUM_NODES, NUM_SLOTS = 2, 3


class LocalNodes:
    """Nodes in this process: what `RayNodes` does, without faults."""

    def __init__(self, num_nodes, jobs, states):
        self.nodes, self.jobs, self.states = [Node() for _ in range(num_nodes)], jobs, states
        self.requests = []

    def run(self, requests):
        self.requests += requests
        answers = {}
        for request in requests:
            answer = self.give(request)
            if answer.state is not None:
                self.states.keep(request.task, request.point + 1, answer.state)
            answers[request.task] = answer
        return answers

    def give(self, request: Request):
        state, points = self.states.latest(request.task)
        job = self.jobs.jobs[request.task]
        return self.nodes[request.node].point(request.task, job, request.point, state, points)

    def drop(self, task):
        self.states.drop(task)


def play(jobs, method, folder, nodes_of=LocalNodes, num_nodes=NUM_NODES, num_slots=NUM_SLOTS):
    """The controller of a run that has ended."""
    states = States(folder / "states", [job.name for job in jobs.jobs])
    nodes = nodes_of(num_nodes, jobs, states)
    run = Controller(jobs, num_nodes, num_slots, method, nodes, states, PlainView(), folder)
    with Journal(folder / "journal.jsonl") as journal:
        run.run(journal)
    return run


def method_of(name, predictor=None):
    if METHODS[name].make is None:
        import torch

        torch.manual_seed(5)
        allocator = MATAllocator(
            MAT(NetworkShape(width=16, num_heads=2, num_blocks=1, imposed_order=True)), 5, {}
        )
    else:
        allocator = METHODS[name].make()
    return LiveMethod(name, allocator, predictor or WLSPredictor())


def small_world(seed=4, names=("img_mlp", "txt_bow", "vit_fmnist"), per_name=3):
    """A bank of trained curves, a workload on it, and the same tasks as jobs."""
    config = CurvesConfig(
        configurations=dict.fromkeys(names, per_name), length_points=POINTS, batches_per_point=3
    )
    candidates = [make_candidate(name, number, config, seed) for name in names for number in range(per_name)]
    raw_CL = np.array([train_candidate(c, "cpu", None)["raw"] for c in candidates], np.float32)
    rows = [
        {
            "curve_id": c.curve_id, "configuration": c.configuration, "set": "id", "split": "test",
            "seed": c.seed, "accepted": True, "status": "ok",
            "hyperparameters": json.dumps(c.hyperparameters),
            "raw": raw_L.tolist(), "ema": ema_L.tolist(),
        }
        for c, raw_L, ema_L in zip(candidates, raw_CL, smooth(raw_CL), strict=True)
    ]  # fmt: skip
    bank = CurveBank.from_rows(rows, "small world")
    rng = np.random.default_rng(seed)
    num_tasks = len(candidates)
    arrival_J = np.sort(rng.integers(0, STEPS // 2, num_tasks))
    arrival_J[:3] = 0
    window_J = rng.integers(8, 26, num_tasks)
    level_J = rng.integers(0, len(FRACTIONS), num_tasks)
    curve_J = rng.permutation(num_tasks)
    workload = padded([np.stack([arrival_J, arrival_J + window_J, curve_J, level_J]).astype(np.int32)])
    target_CG = bank.target_losses(FRACTIONS)
    by_id = {candidate.curve_id: candidate for candidate in candidates}
    jobs = []
    for task in range(num_tasks):
        candidate = by_id[str(bank.curve_id[curve_J[task]])]
        jobs.append(
            Job(
                name=f"task{task}",
                entry="mara_ray.curves.training:make_task",
                arguments={
                    "configuration": candidate.configuration, "hyperparameters": candidate.hyperparameters,
                    "seed": candidate.seed, "batches_per_point": candidate.batches_per_point,
                },
                target=float(target_CG[curve_J[task], level_J[task]]),
                deadline=int(window_J[task]),
                arrival=int(arrival_J[task]),
            )
        )  # fmt: skip
    return bank, workload, Jobs(jobs=tuple(jobs), steps=STEPS, points=POINTS)


def simulated(bank, workload, method, num_nodes=NUM_NODES, num_slots=NUM_SLOTS):
    """The same workload in the simulator."""
    replay = CurveReplay.from_bank(bank, FRACTIONS)
    table = ForecastTable.of(method.predictor, bank, replay.target_CG)
    simulator = Simulator(SimulatorConfig(num_nodes=num_nodes, num_slots=num_slots), STEPS, replay)
    return rollout(simulator, table, method.allocator, workload)
