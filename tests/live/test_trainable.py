"""Tune's Trainables as jobs."""

from pathlib import Path

import pytest
from ray import tune

from mara_ray.live.trainable import TrainableTask


class Counter(tune.Trainable):
    def setup(self, config):
        self.count = config["start"]

    def step(self):
        self.count += 1
        return {"loss": 1 / self.count}

    def save_checkpoint(self, checkpoint_dir):
        (Path(checkpoint_dir) / "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint):
        self.count = int((Path(checkpoint) / "count").read_text())


def test_a_trainable_is_put_down_and_taken_up_again():
    first = TrainableTask(f"{__name__}:Counter", {"start": 3})
    assert [first.run_block(), first.run_block()] == [1 / 4, 1 / 5]
    second = TrainableTask(f"{__name__}:Counter", {"start": 0})
    second.load_state_dict(first.state_dict())
    assert second.run_block() == 1 / 6


def test_what_is_no_trainable_is_refused():
    with pytest.raises(TypeError, match=r"is no class of ray\.tune\.Trainable"):
        TrainableTask("pathlib:Path", {})
