"""Which nodes of a cluster do CPU work: those without GPUs, where labels tell them apart.

A cluster may say itself what its nodes are for, with the label `mara-ray/pool` (`head`, `cpu` or `gpu`, as
in cluster.yaml and kuberay.yaml). That holds also while no node of a pool runs: an autoscaler starts them.
Otherwise Ray's own label of accelerators counts. Where neither tells nodes apart, as on a laptop, any node
will do.
"""

from __future__ import annotations

from typing import Any

import ray

from mara_ray.errors import UserError

POOL = "mara-ray/pool"
ACCELERATOR = "ray.io/accelerator-type"  # the label that Ray gives to nodes with GPUs


def has_pools() -> bool:
    """Whether the nodes of the cluster say which pool they belong to; if so, pools may be empty now."""
    return any(POOL in node["Labels"] for node in _alive())


def cpu_nodes() -> dict[str, str] | None:
    """The label selector of work that needs no GPU; None if any node will do."""
    if has_pools():
        return {POOL: "!gpu"}
    nodes = _alive()
    kinds = {node["Labels"].get(ACCELERATOR) for node in nodes if node["Resources"].get("GPU")}
    others = [node for node in nodes if not node["Resources"].get("GPU") and node["Resources"].get("CPU")]
    kinds.discard(None)
    return {ACCELERATOR: f"!in({','.join(sorted(map(str, kinds)))})"} if kinds and others else None


def check_room(num_env_runners: int, trainer_cpus: float) -> None:
    """Refuse more EnvRunners than the cluster has CPUs for: Ray would wait for them for ever.

    Raises:
        UserError: there are not enough CPUs beside the trainer's, and no pool that may grow.
    """
    room = int(ray.cluster_resources().get("CPU", 0) - trainer_cpus)
    if num_env_runners > room and not has_pools():
        raise UserError(
            f"allocator.num_env_runners: {num_env_runners} EnvRunners need a CPU each, and the cluster has"
            f" {room} beside the trainer's; set fewer, or 0 to sample in the trainer"
        )


def held_cpus() -> float:
    """The CPUs that this process holds as a task; a driver holds none."""
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:
        return 0
    return context.get_assigned_resources().get("CPU", 0)


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]
