"""Live runs on Ray: they end as the simulator says, whatever becomes of the workers."""

import os
import signal
from pathlib import Path

import pytest
import ray
from ray.exceptions import ObjectStoreFullError

from mara_ray import pretrained
from mara_ray.errors import MachineError, UserError
from mara_ray.live import cluster as live_cluster
from mara_ray.live.cluster import RayNodes
from mara_ray.live.jobs import Job, Jobs
from mara_ray.live.outcome import outcome_of
from mara_ray.predictor.flow import FlowPredictor
from tests.live.live_worlds import method_of, play, simulated, small_world

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

TASKS = Path(__file__).parents[1] / "live" / "tasks.py"


def job_of(name, target=0.3, deadline=40, entry="Falling", timeout="60s", arrival=0, **arguments):
    return Job(
        name=name, entry=f"{TASKS}:{entry}", arguments=arguments, target=target, deadline=deadline,
        arrival=arrival, block_timeout=timeout,
    )  # fmt: skip


class Workers:
    """`RayNodes` of half a CPU each, with something that happens before a step's blocks."""

    def __init__(self, hook=lambda nodes, step: None, num_cpus=0.5):
        self.hook, self.num_cpus, self.nodes, self.step, self.said = hook, num_cpus, None, 0, []

    def __call__(self, num_nodes, jobs, states):
        if self.nodes is None:
            self.nodes = RayNodes(num_nodes, jobs, states, self.num_cpus, 0.0, self.said.append)
        self.nodes._states = states
        return self

    def run(self, requests):
        self.hook(self.nodes, self.step)
        self.step += 1
        return self.nodes.run(requests)

    def drop(self, task):
        self.nodes.drop(task)


@pytest.fixture(scope="module")
def world():
    return small_world(names=("img_mlp", "vit_fmnist"), per_name=3)


@pytest.fixture
def live(tmp_path):
    """Play jobs on two workers, that end with the run."""

    def start(jobs, name="fifo", workers=None):
        workers = workers or Workers()
        try:
            return play(jobs, method_of(name), tmp_path / "run", workers)
        finally:
            workers.nodes.close()

    return start


@pytest.fixture(scope="module")
def same_workers():
    """Two workers for one run after the other: tasks that have left are forgotten by all."""
    workers = Workers()
    yield workers
    workers.nodes.close()


@pytest.mark.parametrize("name", ["fifo", "lara_fm", "mara"])
def test_real_trainings_on_two_workers_end_as_the_simulator_says(world, same_workers, tmp_path, name):
    bank, workload, jobs = world
    flow = None if name == "fifo" else FlowPredictor.load(pretrained.PREDICTOR)
    run = play(jobs, method_of(name, flow), tmp_path, same_workers)
    expected = simulated(bank, workload, method_of(name, flow))
    assert run.pool.state.outcomes.finished_BJ.tolist() == expected.outcomes.finished_BJ.tolist()
    assert run.pool.state.outcomes.service_BJ.tolist() == expected.outcomes.service_BJ.tolist()


def kill_worker(nodes, number):
    os.kill(ray.get(nodes._places[number].worker.process.remote()), signal.SIGKILL)


JOBS = Jobs(
    jobs=(
        job_of("moves", target=0.2),
        job_of("stays", entry="falling", target=0.25),
        job_of("third", target=0.2),
        job_of("fourth", arrival=5, deadline=20, target=0.15),
    )
)


def test_a_killed_worker_changes_nothing(live, tmp_path):
    unbroken = play(JOBS, method_of("laira"), tmp_path / "unbroken")
    log = tmp_path / "log"
    logged = JOBS.model_copy(update={"jobs": (job_of("moves", target=0.2, log=str(log)), *JOBS.jobs[1:])})
    workers = Workers(lambda nodes, step: kill_worker(nodes, step % 2) if step in (6, 7) else None)
    run = live(logged, "laira", workers)
    assert outcome_of(run) == outcome_of(unbroken)
    assert workers.nodes.num_lost == 2
    assert "node 0 was lost; the others do its blocks until it is back" in workers.said
    done = outcome_of(run)["jobs"][0]["blocks"]
    assert done <= len(log.read_text().split()) <= done + 2  # at most the block that each worker was at


def test_jobs_that_hang_or_kill_fail_alone(live, monkeypatch):
    monkeypatch.setattr(live_cluster, "MOST_LOSSES", 2)
    jobs = Jobs(
        jobs=(
            job_of("good"),
            job_of("hangs", at=2, do="hang", timeout="3s"),
            job_of("kills", at=3, do="die"),
        )
    )  # fmt: skip
    run = live(jobs)
    outcome = {job["name"]: (job["status"], job["reason"]) for job in outcome_of(run)["jobs"]}
    assert outcome == {
        "good": ("met", None),
        "hangs": ("failed", "block 2 of hangs took more than 3 s"),
        "kills": ("failed", "block 3 of kills lost its worker 2 times"),
    }


def test_a_full_object_store_is_told(live, monkeypatch):
    def full(value):
        raise ObjectStoreFullError("no room")

    jobs = Jobs(jobs=tuple(job_of(name, bytes_of_state=2_000_000) for name in "abc"))
    monkeypatch.setattr(live_cluster.ray, "put", full)
    with pytest.raises(MachineError, match=r"no room for the state of \w+, 2 MB; give Ray more"):
        live(jobs, "random")


def test_more_nodes_than_ray_has_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"2 nodes of 1\.5 CPU are more than the 2 that Ray has"):
        play(JOBS, method_of("fifo"), tmp_path, Workers(num_cpus=1.5))
