"""LLF and SRPT: allocators that go by the median forecast alone, and what that forecast says of every task.

Axis letters: B episodes, K slots, N samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mara_ray.allocator.placement import place_by_priority
from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import READY_POINTS


@dataclass(frozen=True)
class Outlook:
    """What the median forecasts say of the active tasks.

    Attributes:
        demand_BK: steps still needed at the nodes' mean speed, float64, whole.
        window_BK: steps until the deadline.
        known_BK: bool, the task has shown enough points to be forecast.
        reachable_BK: bool, it is known, and its forecast is not the remaining cap, which means never.
    """

    demand_BK: np.ndarray
    window_BK: np.ndarray
    known_BK: np.ndarray
    reachable_BK: np.ndarray

    @classmethod
    def of(cls, observation: Observation) -> Outlook:
        """Read an observation."""
        num_samples = observation.remaining_BKN.shape[2]
        middle_BK2 = observation.remaining_BKN[:, :, [(num_samples - 1) // 2, num_samples // 2]]
        remaining_BK = middle_BK2.mean(2, dtype=np.float64)
        known_BK = observation.active_BK & (observation.num_seen_BK >= READY_POINTS)
        return cls(
            demand_BK=np.ceil(remaining_BK / observation.node_speed_M.mean(dtype=np.float64)),
            window_BK=observation.deadline_BK - observation.time_B[:, None],
            known_BK=known_BK,
            reachable_BK=known_BK & (remaining_BK < observation.cap_points - observation.num_seen_BK),
        )


class _ByForecast:
    """Tasks without a forecast first, oldest first; those whose forecast is past their deadline last."""

    def reset(self, num_episodes: int) -> None:
        """Nothing is remembered."""

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the M tasks that are first in that order; see `Allocator.allocate`."""
        outlook = Outlook.of(observation)
        hopeless_BK = outlook.known_BK & (outlook.demand_BK > outlook.window_BK)
        phase_BK = np.where(outlook.known_BK, 1 + hopeless_BK, 0)
        key_BK = np.where(outlook.known_BK, self._key(outlook), observation.arrival_BK)
        return place_by_priority(observation, phase_BK, key_BK)

    def _key(self, outlook: Outlook) -> np.ndarray:
        """What comes first among forecast tasks: the smallest, (B, K)."""
        raise NotImplementedError


class LLF(_ByForecast):
    """Least laxity first: the least of steps until the deadline less steps still needed.

    Tasks that are not forecast yet come before, those whose forecast is past their deadline after the others.
    """

    name = "llf"

    def _key(self, outlook: Outlook) -> np.ndarray:
        return outlook.window_BK - outlook.demand_BK


class SRPT(_ByForecast):
    """Shortest remaining processing time first: the task that needs the fewest further steps.

    Tasks that are not forecast yet come before, those whose forecast is past their deadline after the others.
    """

    name = "srpt"

    def _key(self, outlook: Outlook) -> np.ndarray:
        return outlook.demand_BK
