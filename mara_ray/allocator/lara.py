"""LARA (Wang et al., ICML 2024) on discrete nodes: explore, keep what can be done, least laxity first."""

from __future__ import annotations

import numpy as np

from mara_ray.allocator.feasibility import largest_feasible_set
from mara_ray.allocator.placement import place_by_priority
from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import READY_POINTS

EXPLORE, EXPLOIT, SPARE = 0, 1, 2


class LARA:
    """Tasks under 4 observations first, oldest first; then the largest set that can be done; then the rest.

    The set is the largest that the estimates say can all meet their deadlines (`largest_feasible_set`; a
    task whose estimate is the remaining cap is held to be out of reach), served by least laxity. Nodes
    that are left go to the unselected tasks with the fewest observations. The estimate is the median
    forecast: on the WLS table this is LARA, on the flow-matching table LARA-FM.
    """

    def __init__(self, name: str = "lara"):
        self.name = name

    def reset(self, num_episodes: int) -> None:
        """Nothing is remembered."""

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the M tasks that are first in that order; see `Allocator.allocate`."""
        num_samples = observation.remaining_BKN.shape[2]
        middle_BK2 = observation.remaining_BKN[:, :, [(num_samples - 1) // 2, num_samples // 2]]
        remaining_BK = middle_BK2.mean(2, dtype=np.float64)
        demand_BK = np.ceil(remaining_BK / observation.node_speed_M.mean(dtype=np.float64))
        window_BK = observation.deadline_BK - observation.time_B[:, None]
        known_BK = observation.active_BK & (observation.num_seen_BK >= READY_POINTS)
        reachable_BK = known_BK & (remaining_BK < observation.cap_points - observation.num_seen_BK)
        num_nodes = observation.node_slot_BM.shape[1]
        selected_BK = largest_feasible_set(demand_BK, window_BK, reachable_BK, num_nodes)
        phase_BK = np.where(known_BK, np.where(selected_BK, EXPLOIT, SPARE), EXPLORE)
        key_BK = np.choose(phase_BK, [observation.arrival_BK, window_BK - demand_BK, observation.num_seen_BK])
        return place_by_priority(observation, phase_BK, key_BK)
