"""LearningTask: what a training must offer to be scheduled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class LearningTask(ABC):
    """A training that runs block by block, and can be put down and taken up again.

    Attributes:
        initial_loss: the loss of the untrained model, point 0 of the curve; if it is left None, the loss of
            the first block is taken for point 0.
    """

    initial_loss: float | None = None

    @abstractmethod
    def run_block(self) -> float:
        """Train one block of mini-batches; returns its mean loss, the next point of the curve."""

    def state_dict(self) -> Any:
        """All that changes while the task runs; anything that can be pickled.

        A class that leaves this out makes tasks that stay on one node, and start again if that is lost.
        """
        raise NotImplementedError

    def load_state_dict(self, state: Any) -> None:
        """Take up a task again; it must have been made with the same arguments."""
        raise NotImplementedError


def has_state(task: LearningTask) -> bool:
    """Whether a task can be put down, and taken up elsewhere."""
    return type(task).state_dict is not LearningTask.state_dict
