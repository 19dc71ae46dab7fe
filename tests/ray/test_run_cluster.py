"""A run on a cluster of CPU nodes and one with a GPU that is only named, and which loses a node."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import ray
import torch
from ray.cluster_utils import Cluster

from mara_ray.config import load_config
from mara_ray.curves.bank import CurveBank
from mara_ray.experiments.pipeline import run_stages
from mara_ray.experiments.run import Run
from mara_ray.experiments.stages import STAGES
from mara_ray.pools import POOL, cpu_nodes
from mara_ray.predictor.fitting import FlowTraining, make_predictor

TINY = Path(__file__).parents[1] / "tiny.yaml"
TOY = [
    "curves.configurations={img_mlp: 12}",
    "allocator.updates=3",
    "allocator.num_env_runners=1",
    "allocator.policies=[mara]",
    "evaluation.rivals=[]",
    "evaluation.sets=[id]",
    "evaluation.loads=[0.2]",
    "evaluation.num_roots=1",
    "evaluation.methods=[mara, lara, fifo]",
]
GPU_CPUS = 2.0
TICK_SECONDS, LATE_TICKS = 0.05, 10  # how long Ray may still show a task that has ended
pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, a node with a GPU, and two of the CPU pool."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "labels": {POOL: "head"}})
    cluster.add_node(num_cpus=int(GPU_CPUS), num_gpus=1, labels={POOL: "gpu"})
    for _ in range(2):
        cluster.add_node(num_cpus=2, labels={POOL: "cpu"})
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}})
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@dataclass
class Watch(threading.Thread):
    """Notes in which stages the node with the GPU works, and takes a CPU node away from the allocator's."""

    cluster: Cluster
    out: Path
    worked: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        (self.gpu,) = (node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU"))

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        while not self.over.wait(TICK_SECONDS):
            stage = next(
                s.name for s in reversed(STAGES) if s.name == "curves" or (self.out / s.name).exists()
            )
            free = ray._private.state.available_resources_per_node().get(self.gpu, {})
            self.worked[stage] += free.get("CPU", 0) < GPU_CPUS
            if not self.lost and list(self.out.glob("allocator/*/checkpoints/*/progress.json")):
                table = ray.util.placement_group_table().values()
                (trainers,) = (
                    set(group["bundles_to_node_id"].values())
                    for group in table
                    if group["state"] == "CREATED"
                )
                assert self.gpu not in trainers
                node = next(n for n in self.cluster.list_all_nodes() if n.node_id in trainers)
                self.lost.append(node.node_id)
                self.cluster.remove_node(node, allow_graceful=False)


def test_work_waits_for_the_pool_rather_than_take_the_gpus(cluster: Cluster) -> None:
    @ray.remote(num_cpus=1, label_selector=cpu_nodes())
    def where() -> str:
        time.sleep(1.0)
        return ray.get_runtime_context().get_node_id()

    (gpu,) = (node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU"))
    assert gpu not in ray.get([where.remote() for _ in range(8)])  # twice what the pool has room for


@pytest.fixture(scope="module")
def predictor(toy_bank: CurveBank, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that was never trained."""
    settings, folder = load_config(str(TINY)).predictor, tmp_path_factory.mktemp("predictor")
    train_CL = toy_bank.ema_CL[toy_bank.rows("id", "train")]
    make_predictor(settings, FlowTraining(settings, train_CL, 0, torch.device("cpu")).average, 0).save(folder)
    return folder


def test_a_run_is_the_same_wherever_it_works(cluster: Cluster, predictor: Path, tmp_path: Path) -> None:
    main = "from mara_ray.cli import main; main()"
    command = [sys.executable, "-c", main, "run", "--preset", str(TINY), "--out", str(tmp_path / "local")]
    toy = [*TOY, f"predictor.trained={predictor}"]
    settings = [part for setting in toy for part in ("--set", setting)]
    local = subprocess.Popen(
        [*command, *settings], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    config = load_config(str(TINY), [*toy, "curves.num_gpus_per_task=0.5"])
    watch = Watch(cluster, tmp_path / "cluster")
    watch.start()
    run = Run(config, tmp_path / "cluster")
    run_stages(run, STAGES, "report")
    watch.over.set()
    watch.join()
    trained_on = json.loads((run.folder("curves") / "manifest.json").read_text())["trained_on"]
    assert list(trained_on) == [f"{watch.gpu} gpu 0"]
    assert watch.lost
    on_gpu = {stage for stage, ticks in watch.worked.items() if ticks > LATE_TICKS}
    assert on_gpu == {"curves"}, "work without a GPU was on the node that has one"
    said = local.communicate(timeout=200)[1]
    assert local.returncode == 0, said
    ours, theirs = (json.loads((tmp_path / at / "summary.json").read_text()) for at in ("cluster", "local"))
    for name in ("methods", "differences", "bounds", "hashes"):
        assert ours[name] == theirs[name], name
