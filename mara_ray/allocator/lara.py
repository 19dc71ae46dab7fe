"""LARA (Wang et al., ICML 2024) on discrete nodes: explore, keep what can be done, least laxity first."""

from __future__ import annotations

import numpy as np

from mara_ray.allocator.demand import Outlook
from mara_ray.allocator.feasibility import largest_feasible_set
from mara_ray.allocator.placement import place_by_priority
from mara_ray.simulator.observe import Observation

EXPLORE, EXPLOIT, SPARE = 0, 1, 2


class LARA:
    """Tasks under 4 observations first, oldest first; then the largest set that can be done; then the rest.

    The set is the largest that the estimates say can all meet their deadlines (`largest_feasible_set`; a
    task whose estimate is the remaining cap is held to be out of reach), served by least laxity. Nodes
    that are left go to the unselected tasks with the fewest observations. The estimate is the median
    forecast: on the WLS table this is LARA, on the flow-matching table LARA-FM.

    The paper can be read in two ways. With `explore_all_first` nothing is exploited while any task is
    under 4 observations: all nodes go to the tasks with the fewest.
    """

    name = "lara"

    def __init__(self, *, explore_all_first: bool = False):
        self.explore_all_first = explore_all_first

    def reset(self, num_episodes: int) -> None:
        """Nothing is remembered."""

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the M tasks that are first in that order; see `Allocator.allocate`."""
        outlook, num_nodes = Outlook.of(observation), observation.node_slot_BM.shape[1]
        window_BK, known_BK = outlook.window_BK, outlook.known_BK
        selected_BK = largest_feasible_set(outlook.demand_BK, window_BK, outlook.reachable_BK, num_nodes)
        phase_BK = np.where(known_BK, np.where(selected_BK, EXPLOIT, SPARE), EXPLORE)
        laxity_BK = window_BK - outlook.demand_BK
        key_BK = np.choose(phase_BK, [observation.arrival_BK, laxity_BK, observation.num_seen_BK])
        if self.explore_all_first:
            exploring_B1 = (observation.active_BK & ~known_BK).any(1, keepdims=True)
            phase_BK = np.where(exploring_B1, EXPLORE, phase_BK)
            key_BK = np.where(exploring_B1, observation.num_seen_BK, key_BK)
        return place_by_priority(observation, phase_BK, key_BK)
