"""Allocator: an observation in, a joint assignment out.

Axis letters: B episodes, M nodes, K slots.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from mara_ray.simulator.observe import Observation


@runtime_checkable
class Allocator(Protocol):
    """Who gets which node. The same objects serve the simulator, the evaluation and live clusters."""

    name: str

    def reset(self, num_episodes: int) -> None:
        """Forget everything; the next observation is of `num_episodes` fresh episodes."""
        ...

    def allocate(self, observation: Observation) -> np.ndarray:
        """Assign nodes for one step.

        Returns:
            int64 (B, M): 0 for an idle node, k for slot k in 1..K. A matching: no slot twice, no empty
            slot; a node is idle only when no free task is left.
        """
        ...
