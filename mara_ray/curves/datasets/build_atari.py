"""Build the shipped play of six Atari games, by the machine's memory.

    pip install -e ".[rl]"
    python -m mara_ray.curves.datasets.build_atari

What ships are the 128 bytes of memory that a random player met, what it pressed and what that brought.
The emulator and its games (GPL) are not needed to use them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mara_ray.curves.datasets.atari import ARCHIVE, GAMES, play_randomly
from mara_ray.curves.datasets.build_fashion_mnist import write_npz


def build(archive: Path) -> None:
    """Write `archive` (.npz with memory uint8 (6, 4000, 128), actions, rewards and ended (6, 4000))."""
    memory, actions, rewards, ended, num_actions = zip(*(play_randomly(g, False) for g in GAMES), strict=True)
    write_npz(
        archive,
        memory=np.array(memory),
        actions=np.array(actions),
        rewards=np.array(rewards),
        ended=np.array(ended),
        num_actions=np.array(num_actions),
    )


if __name__ == "__main__":
    build(ARCHIVE)
