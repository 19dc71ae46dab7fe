"""Fixtures of the tests that need Ray: one of their own, and a toy world on disk."""

import pytest
import ray

from mara_ray.config import ClusterConfig
from mara_ray.experiments.cluster import connect
from tests.ray.mat_worlds import toy_config, write_toy_world


@pytest.fixture(scope="module")
def toy_world(tmp_path_factory):
    """The paths of a bank and of its WLS forecasts."""
    return write_toy_world(tmp_path_factory.mktemp("world"), toy_config())


@pytest.fixture(scope="module")
def local_ray():
    """Two CPUs for one module, started as the project does: a process has one token for all its Rays."""
    connect(ClusterConfig(num_cpus=2))
    yield
    ray.shutdown()
