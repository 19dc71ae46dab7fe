"""Control: CartPole for N carts at once, each with its own physics.

The equations are those of Barto, Sutton and Anderson (1983) in Gymnasium's form: force left or
right, Euler steps of 0.02 s, an episode ends when the pole tilts by 12 degrees, the cart leaves the
track, or the time is up. Axis letters: N carts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STEP_SECONDS = 0.02
GRAVITY = 9.8
CART_MASS = 1.0
MAX_ANGLE = 12 * 2 * np.pi / 360
MAX_POSITION = 2.4
PHYSICS_SPREAD = 0.3  # masses, lengths and forces differ by up to this share between carts


class CartPoles:
    """N carts; one that ends an episode starts the next at once.

    Args:
        num_carts: carts N.
        max_steps: steps after which an episode ends by itself.
        rng: draws the physics and the first states.
    """

    def __init__(self, num_carts: int, max_steps: int, rng: np.random.Generator) -> None:
        spread = rng.uniform(1 - PHYSICS_SPREAD, 1 + PHYSICS_SPREAD, (3, num_carts))
        self.pole_mass_N, self.half_length_N, self.force_N = spread * np.array([[0.1], [0.5], [10.0]])
        self.max_steps = max_steps
        self.state_N4 = rng.uniform(-0.05, 0.05, (num_carts, 4))  # position, speed, angle, its speed
        self.age_N = np.zeros(num_carts, np.int64)  # steps of the running episodes

    def step(
        self, right_N: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Push every cart to the right (1) or the left (0) for one step.

        Returns:
            fallen_N (bool) ended by the pole or the track, expired_N (bool) by the time alone, and
            length_N (int) of the episodes, this step included. Ended ones have a new state already.
        """
        _, speed_N, angle_N, spin_N = self.state_N4.T
        sine_N, cosine_N = np.sin(angle_N), np.cos(angle_N)
        total_mass_N = CART_MASS + self.pole_mass_N
        moment_N = self.pole_mass_N * self.half_length_N
        push_N = np.where(right_N, self.force_N, -self.force_N)
        pull_N = (push_N + moment_N * spin_N**2 * sine_N) / total_mass_N
        leverage_N = self.half_length_N * (4 / 3 - self.pole_mass_N * cosine_N**2 / total_mass_N)
        tilt_N = (GRAVITY * sine_N - cosine_N * pull_N) / leverage_N
        drive_N = pull_N - moment_N * tilt_N * cosine_N / total_mass_N
        change_N4 = np.stack([speed_N, drive_N, spin_N, tilt_N], axis=1)
        # Gymnasium's explicit Euler: positions move with the speeds of before the step.
        self.state_N4 = self.state_N4 + STEP_SECONDS * change_N4
        self.age_N = self.age_N + 1
        length_N = self.age_N
        fallen_N = (np.abs(self.state_N4[:, 0]) > MAX_POSITION) | (np.abs(self.state_N4[:, 2]) > MAX_ANGLE)
        expired_N = ~fallen_N & (length_N >= self.max_steps)
        ended_N = fallen_N | expired_N
        if ended_N.any():
            self.state_N4[ended_N] = rng.uniform(-0.05, 0.05, (int(ended_N.sum()), 4))
            self.age_N = np.where(ended_N, 0, self.age_N)
        return fallen_N, expired_N, length_N

    def state_dict(self) -> dict[str, Any]:
        """What changes from step to step."""
        return {"state_N4": self.state_N4.copy(), "age_N": self.age_N.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.state_N4, self.age_N = state["state_N4"].copy(), state["age_N"].copy()
