"""LaiRA (AAAI 2026) on discrete nodes: keep what can be done, serve what is most ahead of its need.

Axis letters: B episodes, M nodes, K slots.
"""

from __future__ import annotations

import numpy as np

from mara_ray.allocator.drift import DriftTracker
from mara_ray.allocator.placement import place_by_priority
from mara_ray.simulator.observe import Observation
from mara_ray.simulator.state import READY_POINTS

FIRST_SLICE, SHORTEST_SLICE, LONGEST_SLICE = 4.0, 1.0, 16.0  # steps
# Of the PD rule, in steps per unit of log-loss error; as printed they lengthen a slice when the error rises.
PROPORTIONAL_GAIN = DERIVATIVE_GAIN = -10.0
HELD, KEPT, REST = 0, 1, 2


class LaiRA:
    """The M tasks with the highest ratio of predicted to required rate, a slice of time each.

    A task is kept if the extrapolation of its loss to its deadline meets the target (under 4 points there
    is nothing to extrapolate, and it is kept); the others get only the nodes that are left. The rates are
    in ln loss per ln points. Required: from the present loss to the target, until the deadline. Predicted:
    from the present loss to the lowest that is likely at the end of the next slice.

    A node keeps its task until the slice ends, the task ends, or a task arrives. The error of a slice is
    how far the log-loss at its end is from what was expected; a PD rule in its velocity form, with negative
    gains, shortens the task's next slice when the error rises and lengthens it when the error falls.

    It looks at no forecast table: a Kalman filter (`DriftTracker`) follows the losses it observes.
    """

    name = "laira"

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, num_episodes: int) -> None:
        """Forget all tasks."""
        self._tracker: DriftTracker | None = None

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the slices that run, then the kept, then the rest; see `Allocator.allocate`."""
        shape = observation.active_BK.shape
        if self._tracker is None:
            self._tracker = DriftTracker(*shape)
            self._slice_BK, self._left_BK = np.full(shape, FIRST_SLICE), np.zeros(shape, np.int64)
            self._expected_BK, self._error_BK, self._change_BK = np.full((3, *shape), np.nan)
        tracker = self._tracker
        tracker.update(observation)
        self._adapt(tracker)
        arrived_B1 = tracker.fresh_BK.any(axis=1, keepdims=True)
        held_BK = (self._left_BK > 0) & observation.active_BK & ~arrived_B1
        points_per_step = float(observation.node_speed_M.mean(dtype=np.float64))
        length_BK = np.rint(self._slice_BK).astype(np.int64)
        kept_BK, ratio_BK = self._judge(observation, tracker, length_BK * points_per_step, points_per_step)
        phase_BK = np.where(held_BK, HELD, np.where(kept_BK, KEPT, REST))
        action_BM = place_by_priority(observation, phase_BK, -ratio_BK)
        served_BK = (action_BM[:, :, None] == np.arange(1, shape[1] + 1)).any(1)
        starts_BK = served_BK & ~held_BK
        self._left_BK = np.where(served_BK, np.where(starts_BK, length_BK, self._left_BK) - 1, 0)
        expected_BK = np.where(starts_BK, tracker.expected(length_BK * points_per_step), self._expected_BK)
        self._expected_BK = np.where(served_BK, expected_BK, np.nan)
        return action_BM

    def _adapt(self, tracker: DriftTracker) -> None:
        """Set the next slice of the tasks whose slice has ended, and forget those that have left."""
        fresh_BK = tracker.fresh_BK
        self._slice_BK[fresh_BK] = FIRST_SLICE
        self._left_BK[fresh_BK] = 0
        for memory_BK in (self._expected_BK, self._error_BK, self._change_BK):
            memory_BK[fresh_BK] = np.nan
        ended_BK = (self._left_BK == 0) & ~np.isnan(self._expected_BK)
        error_BK = np.where(ended_BK, np.abs(tracker.log_loss_BK - self._expected_BK), self._error_BK)
        change_BK = np.where(ended_BK, error_BK - self._error_BK, self._change_BK)
        bend_BK = np.nan_to_num(change_BK - self._change_BK)  # 0 until there are three errors
        step_BK = PROPORTIONAL_GAIN * np.nan_to_num(change_BK) + DERIVATIVE_GAIN * bend_BK
        longer_BK = np.clip(self._slice_BK + step_BK, SHORTEST_SLICE, LONGEST_SLICE)
        self._slice_BK = np.where(ended_BK, longer_BK, self._slice_BK)
        self._error_BK, self._change_BK = error_BK, change_BK

    def _judge(
        self, observation: Observation, tracker: DriftTracker, slice_BK: np.ndarray, points_per_step: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which tasks to keep, and the ratio of their rates; the slice is in points."""
        points_BK = tracker.points_BK
        window_BK = np.maximum(observation.deadline_BK - observation.time_B[:, None], 1) * points_per_step
        in_time_BK = tracker.expected(window_BK) <= tracker.log_target_BK
        likely_BK = tracker.expected(slice_BK) - tracker.width(slice_BK)
        predicted_BK = (tracker.log_loss_BK - likely_BK) / np.log1p(slice_BK / points_BK)
        way_BK = np.maximum(tracker.log_loss_BK - tracker.log_target_BK, 1e-9)
        required_BK = way_BK / np.log1p(window_BK / points_BK)
        return in_time_BK | (observation.num_seen_BK < READY_POINTS), predicted_BK / required_BK
