"""LaiRA's predictor: a power law whose slope and level drift, followed by a Kalman filter.

Axis letters: B prefixes, C curves, L points, T future steps, G target levels, N samples (1 here),
S the 6 entries of the state (theta, theta', theta''), theta = (slope, level).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from mara_ray.artifacts import hash_of
from mara_ray.predictor.protocol import check_losses

STEP = 1.0  # Delta
PROCESS_VARIANCE_S = np.array([1e-4, 1e-4, 1e-6, 1e-6, 1e-8, 1e-8])  # the diagonal of Q
OBSERVATION_VARIANCE = 1e-3  # R
# LaiRA's text leaves the start open. Here the state starts at 0: no slope, and the level of the first loss;
# with a standard deviation of 1 for theta, and for its drift that of one step of process noise.
INITIAL_VARIANCE_S = np.array([1.0, 1.0, 1e-6, 1e-6, 1e-8, 1e-8])
# The drift is let run for so many steps and then stops: k^2 theta'' / 2 would rule at long range, where
# nothing was learned of theta''. Chosen on the 141 training and validation curves of an early bank, by the
# mean over curves of the error in capped steps: 74.0 without drift, 73.0, 70.3, 67.7 with 1, 4, 8 steps of
# it, 66.2, 65.6, 66.1, 67.5 with 12, 16, 24, 32, and 70.2 without limit.
DRIFT_STEPS = 16

TRANSITION_SS = np.kron([[1, STEP, STEP**2 / 2], [0, 1, STEP], [0, 0, 1]], np.eye(2))  # F


class KalmanPredictor:
    """Follows ln loss = -b ln s + ln a (s = 1..n points) with a drifting theta = (-b, ln a).

    `filter_states` is the filter. The loss k steps ahead is the power law at s = n + k with the theta of
    F^k' state, k' = min(k, DRIFT_STEPS): theta + k' theta' + k'^2 theta'' / 2.

    The answer is the first k whose loss is at or under the target; 0 if the target is met already; the
    cap L - n if there is no such k within it, or under `warmup_points` points.
    """

    name = "laira"
    num_samples = 1

    def __init__(self, warmup_points: int = 4) -> None:
        self.warmup_points = warmup_points

    @property
    def content_hash(self) -> str:
        """What the forecasts depend on, as 16 digits."""
        variances = [*PROCESS_VARIANCE_S.tolist(), OBSERVATION_VARIANCE, *INITIAL_VARIANCE_S.tolist()]
        return hash_of(self.name, self.warmup_points, STEP, variances, DRIFT_STEPS)

    def predict(self, ema_BL: np.ndarray, num_seen_B: np.ndarray, target_BG: np.ndarray) -> np.ndarray:
        """Forecast single prefixes; see `Predictor.predict`."""
        check_losses(ema_BL, num_seen_B, target_BG)
        row_B, last_B = np.arange(len(ema_BL)), num_seen_B - 1
        state_BLS = filter_states(ema_BL[:, : num_seen_B.max(initial=1)])
        log_target_BG = np.log(target_BG / ema_BL[:, :1].astype(np.float64))
        steps_BG = self._remaining(state_BLS[row_B, last_B], num_seen_B, log_target_BG, ema_BL.shape[1])
        lowest_B = np.minimum.accumulate(ema_BL, axis=1)[row_B, last_B]
        steps_BG[lowest_B[:, None] <= target_BG] = 0
        return steps_BG[..., None]

    def predict_curves(self, ema_CL: np.ndarray, target_CG: np.ndarray) -> np.ndarray:
        """Forecast every prefix of curves; see `Predictor.predict_curves`."""
        length = ema_CL.shape[1]
        state_CLS = filter_states(ema_CL)
        log_target_C1G = np.log(target_CG / ema_CL[:, :1].astype(np.float64))[:, None]
        seen_L = np.arange(1, length + 1)
        # All prefixes of one curve at a time: their future losses, (L, T), are a cache-sized array.
        steps_CLG = np.stack(
            [
                self._remaining(state_LS, seen_L, log_target_1G, length)
                for state_LS, log_target_1G in zip(state_CLS, log_target_C1G, strict=True)
            ]
        )
        lowest_CL = np.minimum.accumulate(ema_CL, axis=1)
        steps_CLG[lowest_CL[..., None] <= target_CG[:, None]] = 0
        return steps_CLG[..., None]

    def _remaining(
        self, state_BS: np.ndarray, num_seen_B: np.ndarray, log_target_BG: np.ndarray, length_points: int
    ) -> np.ndarray:
        """Steps to the first extrapolated loss at or under each target, uint16 (B, G).

        Targets are ln(target / first loss), and may be one row (1, G) for all prefixes.
        """
        cap_B = length_points - num_seen_B
        lowest_BT = np.minimum.accumulate(_future_log_losses(state_BS, num_seen_B, length_points), axis=1)
        steps_BG = np.empty((len(state_BS), log_target_BG.shape[1]), np.uint16)
        for level in range(log_target_BG.shape[1]):
            # The lowest loss so far never rises, so the steps over the target are those before the crossing.
            before_B = np.count_nonzero(lowest_BT > log_target_BG[:, level, None], axis=1)
            steps_BG[:, level] = np.where(
                num_seen_B >= self.warmup_points, np.minimum(before_B + 1, cap_B), cap_B
            )
        return steps_BG


def filter_states(ema_CL: np.ndarray) -> np.ndarray:
    """The filter's state after every point of curves, float64 (C, L, S).

    Predict, state <- F state; observe r = ln(loss / first loss) at s by H = (ln s, 1, 0, 0, 0, 0);
    update, state <- state + gain (r - H state). The first point is observed without a predict step.
    Logs relative to the first loss make the answer free of the loss's scale.
    """
    log_loss_CL = np.log(ema_CL / ema_CL[:, :1].astype(np.float64))
    gain_LS = kalman_gains(ema_CL.shape[1])
    state_CLS = np.empty((*ema_CL.shape, 6))
    theta_C2, drift_C2, bend_C2 = np.zeros((3, len(ema_CL), 2))
    for point in range(ema_CL.shape[1]):
        if point > 0:
            theta_C2 = theta_C2 + STEP * drift_C2 + STEP**2 / 2 * bend_C2
            drift_C2 = drift_C2 + STEP * bend_C2
        expected_C = np.log(point + 1.0) * theta_C2[:, 0] + theta_C2[:, 1]
        surprise_C1 = (log_loss_CL[:, point] - expected_C)[:, None]
        theta_C2 = theta_C2 + surprise_C1 * gain_LS[point, :2]
        drift_C2 = drift_C2 + surprise_C1 * gain_LS[point, 2:4]
        bend_C2 = bend_C2 + surprise_C1 * gain_LS[point, 4:]
        state_CLS[:, point] = np.concatenate([theta_C2, drift_C2, bend_C2], axis=1)
    return state_CLS


@cache
def kalman_gains(num_points: int) -> np.ndarray:
    """The gains of points 1..n, read-only float64 (n, S): P H / (H P H + R), with P <- F P F' + Q between.

    They do not depend on the losses, so they serve all curves; a longer series starts with a shorter one.
    """
    gain_LS = np.empty((num_points, 6))
    covariance_SS = np.diag(INITIAL_VARIANCE_S)
    for point in range(num_points):
        if point > 0:
            covariance_SS = TRANSITION_SS @ covariance_SS @ TRANSITION_SS.T + np.diag(PROCESS_VARIANCE_S)
        observed_S = np.log(point + 1.0) * covariance_SS[:, 0] + covariance_SS[:, 1]  # P H
        gain_LS[point] = observed_S / (
            np.log(point + 1.0) * observed_S[0] + observed_S[1] + OBSERVATION_VARIANCE
        )
        covariance_SS = covariance_SS - np.outer(gain_LS[point], observed_S)
    gain_LS.flags.writeable = False
    return gain_LS


def _future_log_losses(state_BS: np.ndarray, num_seen_B: np.ndarray, length_points: int) -> np.ndarray:
    """Extrapolated ln(loss / first loss) of steps k = 1..L - 1 ahead, float64 (B, T), also beyond the cap."""
    step_T = np.arange(1, length_points)
    log_service_BT = np.log(np.arange(1.0, 2 * length_points))[num_seen_B[:, None] + step_T - 1]
    drift_T = STEP * np.minimum(step_T, DRIFT_STEPS)
    bend_T = drift_T**2 / 2
    slope_BT, level_BT = (
        state_BS[:, i, None] + state_BS[:, i + 2, None] * drift_T + state_BS[:, i + 4, None] * bend_T
        for i in (0, 1)
    )
    return slope_BT * log_service_BT + level_BT
