"""A training killed with kill -9 and run again ends in the same weights, to the bit."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray.mat_worlds import OUTPUTS, toy_config, write_toy_world

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def start(world: Path, directory: Path, num_env_runners: int) -> subprocess.Popen:
    arguments = map(str, (world, directory, num_env_runners))
    command = [sys.executable, "-m", "tests.ray.mat_worlds", *arguments]
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root, start_new_session=True
    )


def finish(process: subprocess.Popen, directory: Path) -> dict[str, bytes]:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return {name: (directory / name).read_bytes() for name in OUTPUTS}


def kill_after_update(number: int, process: subprocess.Popen) -> None:
    for line in process.stdout:
        if line.split() == ["update", str(number)]:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was still at work"


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_a_killed_training_resumes_to_the_same_bits(tmp_path, num_env_runners):
    write_toy_world(tmp_path, toy_config())
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    undisturbed = start(tmp_path, unbroken, num_env_runners)
    # After the checkpoint of update 2, and with a line too many.
    kill_after_update(3, start(tmp_path, killed, num_env_runners))
    assert [path.name for path in (killed / "checkpoints").iterdir()] == ["000002"]
    assert (killed / "metrics.jsonl").read_text().count("\n") == 4
    resumed = finish(start(tmp_path, killed, num_env_runners), killed)
    assert resumed == finish(undisturbed, unbroken)
