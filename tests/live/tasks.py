"""Tasks that do what tests need, and nothing else; they are made by workers, from this file."""

import os
import time
from pathlib import Path

import numpy as np

from mara_ray.learning_task import LearningTask


class Falling(LearningTask):
    """Loss 1 / (1 + speed x blocks), and whatever is to happen at a block."""

    def __init__(self, speed=0.2, at=None, do="", log=None, pause_s=0.0, bytes_of_state=0):
        self.blocks, self.speed, self.at, self.do, self.log, self.pause_s = 0, speed, at, do, log, pause_s
        self.weight = np.zeros(bytes_of_state, np.uint8)
        self.initial_loss = 1.0

    def run_block(self):
        self.blocks += 1
        time.sleep(self.pause_s)
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"{self.blocks}\n")
        if self.blocks == self.at:
            act(self.do)
            if self.do == "nan":
                return float("nan")
        return 1 / (1 + self.speed * self.blocks)

    def state_dict(self):
        return {"blocks": self.blocks, "weight": self.weight}

    def load_state_dict(self, state):
        self.blocks, self.weight = state["blocks"], state["weight"]


def act(what):
    """Raise, hang, or end the process: always, or the first time only."""
    kind, _, mark = what.partition(":")
    if mark:
        if Path(mark).exists():
            return
        Path(mark).touch()
    if kind == "raise":
        raise RuntimeError("the data are gone")
    if kind == "hang":
        time.sleep(3600)
    if kind == "die":
        os._exit(1)
    if kind == "leave":
        raise SystemExit(3)


def falling(speed=0.2, log=None, blocks=10**6, pause_s=0.0):
    """A plain loop without a state."""
    for block in range(blocks):
        time.sleep(pause_s)
        if log:
            with open(log, "a") as file:
                file.write(f"{block}\n")
        yield 1 / (1 + speed * block)


def number():
    """No task."""
    return 3
