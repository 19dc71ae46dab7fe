"""FIFO and EDF: allocators that look at no forecast, and serve hopeless tasks like any other."""

from __future__ import annotations

import numpy as np

from mara_ray.allocator.placement import place_by_priority
from mara_ray.simulator.observe import Observation


class FIFO:
    """The task that arrived first is served first."""

    name = "fifo"

    def reset(self, num_episodes: int) -> None:
        """Nothing is remembered."""

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the M oldest tasks; see `Allocator.allocate`."""
        return place_by_priority(observation, observation.arrival_BK)


class EDF:
    """The task whose deadline is nearest is served first."""

    name = "edf"

    def reset(self, num_episodes: int) -> None:
        """Nothing is remembered."""

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the M tasks with the nearest deadlines; see `Allocator.allocate`."""
        return place_by_priority(observation, observation.deadline_BK)
