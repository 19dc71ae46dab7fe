"""A bank made on a cluster of several nodes, with GPUs that are only named, and one that loses a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from mara_ray.config import CurvesConfig
from mara_ray.curves.generate import generate_bank
from mara_ray.pools import ACCELERATOR
from mara_ray.progress import silent

pytestmark = [pytest.mark.ray, pytest.mark.slow]

CONFIG = CurvesConfig(
    configurations={"img_mlp": 5, "rl_atari_value": 2},
    length_points=30,
    batches_per_point=1,
    curves_per_task=1,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, two nodes of one CPU, and a node with a GPU."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=2, num_gpus=1, labels={ACCELERATOR: "imagined"})
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}})
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def unbroken(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unbroken")
    generate_bank(CONFIG, 1, directory, silent)
    return directory


def trained_on(directory: Path) -> dict[str, int]:
    return json.loads((directory / "manifest.json").read_text())["trained_on"]


def gpu_node() -> str:
    (node,) = (node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU"))
    return node


def test_cpu_tasks_stay_off_the_gpus(unbroken: Path) -> None:
    assert not any(place.startswith(gpu_node()) for place in trained_on(unbroken))


def test_gpu_tasks_take_fractions_of_them(unbroken: Path, tmp_path: Path) -> None:
    generate_bank(CONFIG.model_copy(update={"num_gpus_per_task": 0.5}), 1, tmp_path, silent)
    assert list(trained_on(tmp_path)) == [f"{gpu_node()} gpu 0"]
    assert (tmp_path / "bank.parquet").read_bytes() == (unbroken / "bank.parquet").read_bytes()


def test_a_node_that_is_lost_changes_nothing(cluster: Cluster, unbroken: Path, tmp_path: Path) -> None:
    lost = []

    def remove_one(done: int, total: int, text: str) -> None:
        if done >= 2 and not lost:
            node = next(node for node in cluster.list_all_nodes() if node.node_id in trained_on(unbroken))
            lost.append(node.node_id)
            cluster.remove_node(node, allow_graceful=False)

    generate_bank(CONFIG, 1, tmp_path, remove_one)
    assert lost
    assert (tmp_path / "bank.parquet").read_bytes() == (unbroken / "bank.parquet").read_bytes()
