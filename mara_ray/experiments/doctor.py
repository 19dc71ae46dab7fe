"""What `mara doctor` says: versions, cores, GPUs, Ray, W&B mode, data found and missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ray

from mara_ray.config import ClusterConfig, TrackingConfig
from mara_ray.curves.datasets import state_of_data
from mara_ray.errors import MaraError
from mara_ray.experiments.cluster import connect
from mara_ray.experiments.tracking import wandb_mode
from mara_ray.provenance import versions


def diagnose(cluster: ClusterConfig, tracking: TrackingConfig, data_folder: Path) -> dict[str, Any]:
    """Look at the machine; starts a private Ray for a moment unless an address is given.

    Returns:
        {"versions", "cores", "gpus", "ray", "wandb_mode", "data"}; `ray` is "ok" or why it is not.
    """
    try:
        connect(cluster)
        resources = ray.cluster_resources()
        answer, cores, gpus = "ok", int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    except MaraError as error:
        answer, cores, gpus = str(error), os.cpu_count() or 1, 0
    return {
        "versions": versions(),
        "cores": cores,
        "gpus": gpus,
        "ray": answer,
        "wandb_mode": wandb_mode(tracking),
        "data": state_of_data(data_folder),
    }
