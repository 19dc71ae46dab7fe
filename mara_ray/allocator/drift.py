"""LaiRA's view of a loss curve, kept up as the points come in, one task per slot.

Axis letters: B episodes, K slots, E tasks with a new point,
S the 6 entries of the filter's state (see `predictor.kalman`).
"""

from __future__ import annotations

import numpy as np

from mara_ray.predictor.kalman import DRIFT_STEPS, kalman_gains
from mara_ray.simulator.observe import Observation

FORGETTING = 0.9  # gamma
RIDGE = 1e-2  # lambda
CONFIDENCE = 0.1  # delta
NOISE = 1e-3**0.5  # standard deviation of an observed log-loss, the root of the filter's R


class DriftTracker:
    """The drifting power law of every task, and how sure it is.

    The filter is `predictor.kalman.filter_states`, fed with the latest loss of each observation: with nodes
    of speed 1 it is the same to the bit of rounding. Points that were passed over between two observations
    (faster nodes) are predicted, not observed. All log-losses are relative to the untrained loss.

    Attributes:
        fresh_BK: bool, the slot's task was not there at the observation before.
        points_BK: points seen, float64, 1 in empty slots.
        log_loss_BK, log_target_BK: ln(loss / first loss) and ln(target / first loss), 0 in empty slots.
    """

    fresh_BK: np.ndarray
    points_BK: np.ndarray
    log_loss_BK: np.ndarray
    log_target_BK: np.ndarray

    def __init__(self, num_episodes: int, num_slots: int):
        """Trackers of empty slots."""
        self._task_BK = np.full((num_episodes, num_slots), -1, np.int64)
        self.points_BK = np.ones((num_episodes, num_slots))
        self._state_BKS = np.zeros((num_episodes, num_slots, 6))
        # The sum of gamma^age x x', x = (ln s, 1), as its entries (ln s)^2, ln s and 1.
        self._gram_BK3 = np.zeros((num_episodes, num_slots, 3))

    def update(self, observation: Observation) -> None:
        """Take in the points that are new."""
        active_BK = observation.active_BK
        self.fresh_BK = active_BK & (observation.task_BK != self._task_BK)
        self._task_BK = observation.task_BK.astype(np.int64)
        blank_BK = self.fresh_BK | ~active_BK
        self._state_BKS[blank_BK] = 0.0  # what the filter knows after the untrained loss
        self._gram_BK3[blank_BK] = (0.0, 0.0, 1.0)
        before_BK = np.where(blank_BK, 1.0, self.points_BK)
        self.points_BK = np.where(active_BK, observation.num_seen_BK, 1).astype(np.float64)
        first_BK = np.where(active_BK, observation.initial_loss_BK, 1.0).astype(np.float64)
        self.log_loss_BK = np.log(np.where(active_BK, observation.loss_BK, 1.0) / first_BK)
        self.log_target_BK = np.log(np.where(active_BK, observation.target_BK, 1.0) / first_BK)
        self._observe(self.points_BK > before_BK, before_BK, observation.cap_points)

    def _observe(self, new_BK: np.ndarray, before_BK: np.ndarray, num_points: int) -> None:
        """Let the filters predict from the points before to the new ones, and update."""
        episode, slot = np.nonzero(new_BK)  # E of them
        points_E = self.points_BK[episode, slot]
        step_E1 = (points_E - before_BK[episode, slot])[:, None]
        state_ES = self._state_BKS[episode, slot]
        theta_E2, drift_E2, bend_E2 = state_ES[:, :2], state_ES[:, 2:4], state_ES[:, 4:]
        state_ES[:, :2] = theta_E2 + step_E1 * drift_E2 + step_E1**2 / 2 * bend_E2
        state_ES[:, 2:4] = drift_E2 + step_E1 * bend_E2
        log_points_E = np.log(points_E)
        surprise_E = self.log_loss_BK[episode, slot] - log_points_E * state_ES[:, 0] - state_ES[:, 1]
        gain_ES = kalman_gains(num_points)[points_E.astype(np.int64) - 1]
        self._state_BKS[episode, slot] = state_ES + surprise_E[:, None] * gain_ES
        seen_E3 = np.stack([log_points_E**2, log_points_E, np.ones_like(log_points_E)], axis=1)
        self._gram_BK3[episode, slot] = FORGETTING**step_E1 * self._gram_BK3[episode, slot] + seen_E3

    def expected(self, ahead_BK: np.ndarray) -> np.ndarray:
        """ln(loss / first loss) so many points ahead, float64 (B, K); the drift stops after DRIFT_STEPS."""
        drift_BK1 = np.minimum(ahead_BK, DRIFT_STEPS)[..., None]
        state_BKS = self._state_BKS
        theta_BK2 = (
            state_BKS[..., :2] + drift_BK1 * state_BKS[..., 2:4] + drift_BK1**2 / 2 * state_BKS[..., 4:]
        )
        expected_BK: np.ndarray = np.log(self.points_BK + ahead_BK) * theta_BK2[..., 0] + theta_BK2[..., 1]
        return expected_BK

    def width(self, ahead_BK: np.ndarray) -> np.ndarray:
        """By how much the loss so many points ahead may be under that: beta |x| in the norm of V^-1.

        V = lambda I + sum of gamma^age x x'. beta is that of Abbasi-Yadkori, Pal and Szepesvari (2011,
        theorem 2) with parameters of size 1: noise sqrt(ln(det V / lambda^2) + 2 ln(1 / delta)) +
        sqrt(lambda).

        Returns:
            float64 (B, K).
        """
        square_BK, cross_BK, one_BK = np.moveaxis(self._gram_BK3, 2, 0)
        square_BK, one_BK = square_BK + RIDGE, one_BK + RIDGE
        determinant_BK = square_BK * one_BK - cross_BK**2
        log_points_BK = np.log(self.points_BK + ahead_BK)
        norm_BK = (log_points_BK**2 * one_BK - 2 * log_points_BK * cross_BK + square_BK) / determinant_BK
        beta_BK = NOISE * np.sqrt(np.log(determinant_BK / RIDGE**2) + 2 * np.log(1 / CONFIDENCE))
        width_BK: np.ndarray = (beta_BK + RIDGE**0.5) * np.sqrt(norm_BK)
        return width_BK
