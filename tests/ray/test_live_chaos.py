"""A live run whose controller is killed, or that loses a node of its cluster, has the same outcome."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
import yaml
from ray.cluster_utils import Cluster

from mara_ray.live.cluster import RayNodes
from mara_ray.live.jobs import read_jobs
from mara_ray.live.outcome import write_outcome
from tests.live.live_worlds import method_of, play

pytestmark = [pytest.mark.ray, pytest.mark.slow]

TASKS = Path(__file__).parents[1] / "live" / "tasks.py"
PAUSE_S = 0.15  # of a block, so that there is time to kill
JOBS = [
    {"name": "first", "target": 0.2, "deadline": 60},
    {"name": "loop", "target": 0.25, "deadline": 60, "entry": "falling"},
    {"name": "raises", "target": 0.1, "deadline": 60, "at": 12, "do": "raise"},
    {"name": "comes", "target": 0.2, "deadline": 14, "arrival": 8},
]


def write_jobs(path, pause_s):
    own = ("name", "target", "deadline", "arrival")
    jobs = [
        {
            **{key: job[key] for key in own if key in job},
            "entry": f"{TASKS}:{job.get('entry', 'Falling')}",
            "arguments": {"pause_s": pause_s, **{key: job[key] for key in ("at", "do") if key in job}},
        }
        for job in JOBS
    ]
    path.write_text(yaml.safe_dump({"jobs": jobs}))
    return path


@pytest.fixture
def jobs_file(tmp_path):
    return write_jobs(tmp_path / "jobs.yaml", PAUSE_S)


@pytest.fixture
def unbroken(tmp_path):
    """The outcome of the run without Ray and without faults, as a file's bytes."""
    run = play(read_jobs(write_jobs(tmp_path / "quick.yaml", 0.0)), method_of("laira"), tmp_path, num_slots=8)
    write_outcome(run, tmp_path, 0, 0)
    return (tmp_path / "outcome.json").read_bytes()


def start(jobs_file, out):
    program = "from mara_ray.cli import main; main()"
    options = ["--nodes", "2", "--allocator", "laira", "--out", str(out), "--report", "--json"]
    command = [sys.executable, "-c", program, "schedule", str(jobs_file), *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "RAY_ADDRESS": "local"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_steps(journal, steps, process):
    until = time.monotonic() + 120
    while not journal.is_file() or journal.read_bytes().count(b"\n") < steps:
        assert process.poll() is None and time.monotonic() < until, process.communicate(timeout=10)
        time.sleep(0.05)


def test_a_killed_controller_goes_on_to_the_same_outcome(jobs_file, tmp_path, unbroken):
    out = tmp_path / "killed"
    process = start(jobs_file, out)
    wait_for_steps(out / "journal.jsonl", 10, process)
    process.kill()
    process.communicate()
    before = (out / "journal.jsonl").read_bytes()
    assert not (out / "outcome.json").exists()
    answer, errors = (resumed := start(jobs_file, out)).communicate(timeout=180)
    assert resumed.returncode == 0, errors
    assert (out / "outcome.json").read_bytes() == unbroken
    assert json.loads(answer) == json.loads(unbroken)
    assert (out / "journal.jsonl").read_bytes().startswith(before.rpartition(b"\n")[0])
    assert (out / "gantt.png").is_file()


def test_a_lost_node_of_a_cluster_changes_nothing(jobs_file, tmp_path, unbroken):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}})
    try:
        cluster.wait_for_nodes()
        run = Losing(cluster, nodes[1]).play(jobs_file, tmp_path / "lost")
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert (tmp_path / "lost" / "outcome.json").read_bytes() == unbroken
    assert run.said.count("node 0 was lost; the others do its blocks until it is back") + run.said.count(
        "node 1 was lost; the others do its blocks until it is back"
    ) == 1  # fmt: skip


class Losing:
    """A run that loses a node of its cluster, and gets another one later."""

    def __init__(self, cluster, node):
        self.cluster, self.node, self.step, self.said = cluster, node, 0, []

    def play(self, jobs_file, folder):
        run = play(read_jobs(jobs_file), method_of("laira"), folder, self, num_slots=8)
        write_outcome(run, folder, 0, 0)
        return self

    def __call__(self, num_nodes, jobs, states):
        self.nodes = RayNodes(num_nodes, jobs, states, 1.0, 0.0, self.said.append)
        return self

    def run(self, requests):
        self.step += 1
        if self.step == 6:
            self.cluster.remove_node(self.node, allow_graceful=False)
        if self.step == 12:
            self.cluster.add_node(num_cpus=1)
        return self.nodes.run(requests)

    def drop(self, task):
        self.nodes.drop(task)
