"""A toy world on disk for the tests that train a transformer: short curves, short episodes."""

import sys
from pathlib import Path

from mara_ray.config import RunConfig, load_config
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.progress import silent
from tests.conftest import make_toy_bank

OUTPUTS = ("policy.safetensors", "policy.json", "metrics.jsonl")
TOY = (
    "workload.episode_steps=80",
    "workload.window_steps=40",
    "workload.arrival_probability=0.15",
    "simulator.num_nodes=3",
    "simulator.num_slots=6",
    "allocator.width=16",
    "allocator.num_heads=2",
    "allocator.updates=4",
    "allocator.episodes_per_update=6",
    "allocator.epochs=2",
    "allocator.minibatch_rows=64",
    "allocator.validate_every=2",
    "allocator.validation_episodes=4",
)


def toy_config(*overrides: str) -> RunConfig:
    return load_config("quick", (*TOY, *overrides))


def write_toy_world(directory: Path, config: RunConfig) -> tuple[Path, Path]:
    """Returns the paths of a bank and of its WLS forecasts."""
    bank_path, table_directory = directory / "bank.parquet", directory / "wls"
    bank = make_toy_bank(30)
    bank.write(bank_path)
    target_CG = bank.target_losses(config.workload.target_fractions)
    ForecastTable.build(WLSPredictor(), bank, target_CG, table_directory, silent)
    return bank_path, table_directory


def train_in_this_process(world: Path, directory: Path, num_env_runners: int) -> None:
    """The body of the process that a test kills: says each update on standard output."""
    import ray

    from mara_ray.allocator.mat.algorithm import train_policy

    ray.init("local", num_cpus=1 + num_env_runners, include_dashboard=False, log_to_driver=False)
    train_policy(
        toy_config(f"allocator.num_env_runners={num_env_runners}"),
        "wls",
        0,
        world / "bank.parquet",
        world / "wls",
        directory,
        lambda done, total, text: print("update", done, flush=True),
    )


if __name__ == "__main__":
    train_in_this_process(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
