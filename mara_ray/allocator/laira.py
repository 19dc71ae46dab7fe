"""LaiRA (AAAI 2026) on discrete nodes: keep what can be done, serve what is furthest ahead, slice by slice.

Axis letters: B episodes, M nodes, K slots.
"""

from __future__ import annotations

import numpy as np

from mara_ray.allocator.demand import Outlook
from mara_ray.allocator.placement import place_by_priority
from mara_ray.simulator.observe import Observation

FIRST_SLICE, LONGEST_SLICE = 4.0, 16.0  # steps
GAIN = -10.0  # of the error and of its change: slices shorten as forecasts get worse
HELD, EXPLORE, KEPT, REST = 0, 1, 2, 3


class LaiRA:
    """Nodes keep their tasks for a slice; then the tasks with the greatest ratio of rates come first.

    A task at loss l after s points, with `left` steps to its deadline, must lose log loss at the rate
    rho = ln(l / target) / ln((s + left) / s) per log point. The Kalman filter (`predictor.kalman`) says
    that it will be done in r steps, which is the rate rho' = ln(l / target) / ln((s + r) / s). Tasks with
    r <= left are kept and ordered by rho' / rho; the others take what is left, in the same order; those
    that are not forecast yet come before both, oldest first.

    A slice ends early for all when a task arrives, and for a node when its task leaves. Its length is 4
    steps at first, and afterwards 4 - 10 (e + e - e') within 1..16: e is the mean error of the log losses
    that rho' foretold for the slice, e' that of the slice before. The paper's bonus for uncertain rates
    needs the filter's covariance, which forecasts do not hold; it is left out.
    """

    name = "laira"

    def reset(self, num_episodes: int) -> None:
        """Begin with the first slice."""
        self._newest_B = np.full(num_episodes, -1)
        self._slice_B = np.full(num_episodes, FIRST_SLICE)
        self._left_B = np.zeros(num_episodes)
        self._error_B = np.zeros(num_episodes)
        self._foretold: tuple[np.ndarray, ...] = ()

    def allocate(self, observation: Observation) -> np.ndarray:
        """Serve the M tasks that are first in that order; see `Allocator.allocate`."""
        outlook = Outlook.of(observation)
        seen_BK = np.maximum(observation.num_seen_BK, 1).astype(np.float64)
        ahead_BK = np.log1p(np.maximum(outlook.demand_BK, 1) / seen_BK)
        ratio_BK = np.log1p(np.maximum(outlook.window_BK, 0) / seen_BK) / ahead_BK
        with np.errstate(divide="ignore"):
            log_loss_BK = np.where(observation.active_BK, np.log(observation.loss_BK), 0.0)
            log_target_BK = np.where(observation.active_BK, np.log(observation.target_BK), 0.0)
        rate_BK = np.maximum(log_loss_BK - log_target_BK, 0.0) / ahead_BK

        newest_B = observation.task_BK.max(1)
        renew_B = (self._left_B <= 0) | (newest_B > self._newest_B)
        self._newest_B = np.maximum(newest_B, self._newest_B)
        now = (observation.task_BK, log_loss_BK, rate_BK, seen_BK, outlook.reachable_BK)
        if not self._foretold:  # the first step
            self._foretold = now
        self._adapt(now, renew_B)
        self._foretold = tuple(
            np.where(renew_B[:, None], new, old) for new, old in zip(now, self._foretold, strict=True)
        )
        self._left_B = np.where(renew_B, np.rint(self._slice_B), self._left_B) - 1

        slot_K = np.arange(1, seen_BK.shape[1] + 1)
        held_BK = (observation.node_slot_BM[:, :, None] == slot_K).any(1) & ~renew_B[:, None]
        kept_BK = outlook.reachable_BK & (outlook.demand_BK <= outlook.window_BK)
        phase_BK = np.where(outlook.known_BK, np.where(kept_BK, KEPT, REST), EXPLORE)
        key_BK = np.where(outlook.known_BK, -ratio_BK, observation.arrival_BK)
        return place_by_priority(observation, np.where(held_BK, HELD, phase_BK), key_BK)

    def _adapt(self, now: tuple[np.ndarray, ...], renew_B: np.ndarray) -> None:
        """Set the length of new slices by the errors of what was foretold when the last ones began."""
        task_BK, log_loss_BK, _, seen_BK, _ = now
        past_task_BK, past_log_loss_BK, rate_BK, past_seen_BK, foretold_BK = self._foretold
        served_BK = (task_BK == past_task_BK) & (seen_BK > past_seen_BK) & foretold_BK
        expected_BK = past_log_loss_BK - rate_BK * np.log(seen_BK / past_seen_BK)
        num_served_B = served_BK.sum(1)
        error_B = (np.abs(log_loss_BK - expected_BK) * served_BK).sum(1) / np.maximum(num_served_B, 1)
        slice_B = np.clip(FIRST_SLICE + GAIN * (2 * error_B - self._error_B), 1.0, LONGEST_SLICE)
        changed_B = renew_B & (num_served_B > 0)
        self._slice_B = np.where(changed_B, slice_B, self._slice_B)
        self._error_B = np.where(changed_B, error_B, self._error_B)
