"""A training killed with kill -9 and run again ends in the same weights, to the bit."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray.mat_worlds import toy_config, write_toy_world

pytestmark = [pytest.mark.ray, pytest.mark.slow]

OUTPUTS = ("policy.safetensors", "policy.json", "metrics.jsonl")


def start(world: Path, directory: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.ray.mat_worlds", str(world), str(directory)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root, start_new_session=True
    )


def finish(process: subprocess.Popen, directory: Path) -> dict[str, bytes]:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return {name: (directory / name).read_bytes() for name in OUTPUTS}


def kill_after_update(number: int, world: Path, directory: Path) -> None:
    process = start(world, directory)
    for line in process.stdout:
        if line.split() == ["update", str(number)]:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was still at work"


def test_a_killed_training_resumes_to_the_same_bits(tmp_path):
    write_toy_world(tmp_path, toy_config())
    undisturbed = start(tmp_path, tmp_path / "unbroken")
    killed = tmp_path / "killed"
    kill_after_update(3, tmp_path, killed)  # after the checkpoint of update 2, and with a line too many
    assert [path.name for path in (killed / "checkpoints").iterdir()] == ["000002"]
    assert (killed / "metrics.jsonl").read_text().count("\n") == 4
    resumed = finish(start(tmp_path, killed), killed)
    assert resumed == finish(undisturbed, tmp_path / "unbroken")
