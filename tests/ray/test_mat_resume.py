"""A training killed with kill -9 and run again ends in the same weights, to the bit."""

import subprocess
from pathlib import Path

import pytest

from mara_ray.allocator.mat.checkpoints import last_checkpoint
from tests.ray.mat_worlds import OUTPUTS, kill_after_update, start_training, toy_config, write_toy_world

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def finish(process: subprocess.Popen, directory: Path) -> dict[str, bytes]:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return {name: (directory / name).read_bytes() for name in OUTPUTS}


def test_a_killed_training_resumes_to_the_same_bits(tmp_path):
    write_toy_world(tmp_path, toy_config())
    undisturbed = start_training(tmp_path, tmp_path / "unbroken")
    killed = tmp_path / "killed"
    # After the checkpoint of update 2, and with a line too many.
    kill_after_update(3, start_training(tmp_path, killed))
    assert [path.name for path in (killed / "checkpoints").iterdir()] == ["000002"]
    assert (killed / "metrics.jsonl").read_text().count("\n") == 4
    (_, before) = last_checkpoint(killed) or pytest.fail("there is one")
    resumed = finish(start_training(tmp_path, killed), killed)
    assert resumed == finish(undisturbed, tmp_path / "unbroken")
    (_, after) = last_checkpoint(killed) or pytest.fail("there is one")
    assert after.cpu_s > before.cpu_s + 0.1 > 0.2, "what was spent before the kill counts"
