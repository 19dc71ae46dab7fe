"""An address at which no Ray answers is told in a line, at once; cluster.yaml is valid."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from mara_ray.config import ClusterConfig
from mara_ray.errors import MachineError, UserError
from mara_ray.experiments.cluster import connect
from mara_ray.pools import POOL


def test_nothing_answers() -> None:
    started = time.monotonic()
    with pytest.raises(MachineError, match=r"nothing answers at 127\.0\.0\.1:1 "):
        connect(ClusterConfig(address="127.0.0.1:1"))
    assert time.monotonic() - started < 10


def test_a_port_taken_by_something_else() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    with pytest.raises(MachineError, match="is not Ray; free the port"):
        connect(ClusterConfig(address=address))
    server.shutdown()


def test_malformed_address() -> None:
    with pytest.raises(UserError, match="'nowhere' is not host:port"):
        connect(ClusterConfig(address="nowhere"))


def test_cluster_yaml_is_valid() -> None:
    path = Path(__file__).parents[2] / "cluster.yaml"
    validate_config(prepare_config(yaml.safe_load(path.read_text())))


def test_pools_are_labelled_alike() -> None:
    root = Path(__file__).parents[2]
    types = yaml.safe_load((root / "cluster.yaml").read_text())["available_node_types"]
    job = yaml.safe_load((root / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"} and cluster["enableInTreeAutoscaling"]
    groups = {"head": cluster["headGroupSpec"]} | {g["groupName"]: g for g in cluster["workerGroupSpecs"]}
    for name in ("head", "cpu", "gpu"):
        assert types[name]["labels"] == groups[name]["labels"] == {POOL: name}
        limits = groups[name]["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert ("nvidia.com/gpu" in limits) == (name == "gpu") == ("GPU" in types[name]["resources"])
