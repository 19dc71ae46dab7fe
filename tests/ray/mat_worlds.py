"""A toy world on disk for the tests that train a transformer: short curves, short episodes."""

import signal
import subprocess
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
    "allocator.rollouts_per_workload=2",
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


def start_training(world: Path, directory: Path, *overrides: str) -> subprocess.Popen:
    """Train in another process, which says each update on standard output."""
    command = [sys.executable, "-m", "tests.ray.mat_worlds", str(world), str(directory), *overrides]
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root, start_new_session=True
    )


def kill_after_update(number: int, process: subprocess.Popen) -> None:
    for line in process.stdout:
        if line.split() == ["update", str(number)]:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was still at work"


def train_in_this_process(world: Path, directory: Path, config: RunConfig) -> None:
    import ray

    from mara_ray.allocator.mat.algorithm import train_policy

    num_cpus = 1 + config.allocator.num_env_runners
    ray.init("local", num_cpus=num_cpus, include_dashboard=False, log_to_driver=False)
    train_policy(
        config,
        "wls",
        0,
        world / "bank.parquet",
        world / "wls",
        directory,
        lambda done, total, text: print("update", done, flush=True),
    )


if __name__ == "__main__":
    train_in_this_process(Path(sys.argv[1]), Path(sys.argv[2]), toy_config(*sys.argv[3:]))
