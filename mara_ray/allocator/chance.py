"""Random: what an allocator is worth that knows nothing and wants nothing."""

from __future__ import annotations

import numpy as np

from mara_ray.allocator.placement import place_by_priority
from mara_ray.seeding import generator
from mara_ray.simulator.observe import Observation


class Random:
    """In every step other tasks, each as likely as the next; the same ones in every run."""

    name = "random"

    def reset(self, num_episodes: int) -> None:
        """Begin the draws anew."""
        self._rng = generator(0, "allocator", "random")

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve M tasks at random; see `Allocator.allocate`."""
        return place_by_priority(observation, self._rng.random(observation.active_BK.shape))
