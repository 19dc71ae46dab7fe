"""Atari games: what a random player saw in the machine's memory (shipped), or on its screen (ale-py).

Axis letters: N frames, B frames of a mini-batch, G games, H height, W width.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from mara_ray.curves.datasets.examples import Examples
from mara_ray.errors import UserError

ARCHIVE = Path(__file__).parent / "data" / "atari_memory.npz"
GAMES = ("pong", "boxing", "asterix", "space_invaders", "seaquest", "ms_pacman")
FRAMES_PER_GAME = 4000
FRAME_SKIP = 4
SCREEN_PIXELS = 84
SCREENS_PER_INPUT = 4
REMEDY = "install it with `pip install ale-py`"


@dataclass(frozen=True)
class Play:
    """What a random player met in one game; frame i + 1 follows frame i.

    Attributes:
        frame: (N, 128) float32, the machine's bytes, each standardised; or (N, 84, 84) uint8, the screen.
        action_N: int64, what was then pressed.
        reward_N: float32, what that brought, in units of its standard deviation.
        ended_N: bool, whether the episode ended with it.
        num_actions: buttons of this game.
    """

    frame: np.ndarray
    action_N: np.ndarray
    reward_N: np.ndarray
    ended_N: np.ndarray
    num_actions: int

    def returns(self, discount: float) -> np.ndarray:
        """Discounted sums of the rewards to come in the episode, float32 (N,), standardised."""
        returns_N = np.zeros(len(self.reward_N), np.float32)
        running = 0.0
        for frame in reversed(range(len(returns_N))):
            running = self.reward_N[frame] + discount * running * (not self.ended_N[frame])
            returns_N[frame] = running
        return (returns_N - returns_N.mean()) / returns_N.std()


@cache
def load_memory(game: str) -> Play:
    """The shipped play of one game, by the machine's memory.

    Raises:
        UserError: the shipped archive is missing or damaged.
    """
    try:
        with np.load(ARCHIVE) as arrays:
            number = GAMES.index(game)
            memory_NE, action_N = arrays["memory"][number], arrays["actions"][number]
            reward_N, ended_N = arrays["rewards"][number], arrays["ended"][number]
            num_actions = int(arrays["num_actions"][number])
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"atari: {ARCHIVE} is missing or damaged; install mara_ray again") from error
    frame = memory_NE.astype(np.float32)
    spread = frame.std(0)
    frame = (frame - frame.mean(0)) / np.where(spread > 0, spread, 1)
    return Play(frame, action_N.astype(np.int64), _scaled(reward_N), ended_N.astype(bool), num_actions)


@cache
def play_screens(game: str) -> Play:
    """Play one game at random, by the machine's screen.

    Raises:
        UserError: ale-py is not installed.
    """
    if missing_machine(Path()):
        raise UserError(f"atari: ale-py is missing; {REMEDY}")
    screen_NHW, action_N, reward_N, ended_N, num_actions = play_randomly(game, screens=True)
    return Play(screen_NHW, action_N.astype(np.int64), _scaled(reward_N), ended_N.astype(bool), num_actions)


def play_randomly(game: str, screens: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """4000 frames of uniformly random play, the machine seeded.

    Returns:
        Frames uint8 (N, 128), or (N, 84, 84) if `screens`; actions uint8 (N,), rewards float32 (N,), ended
        bool (N,), and the number of actions.
    """
    import ale_py
    from PIL import Image

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    machine = ale_py.ALEInterface()
    machine.setInt("random_seed", 1)
    machine.setFloat("repeat_action_probability", 0.25)
    machine.setInt("frame_skip", FRAME_SKIP)
    machine.loadROM(str(ale_py.roms.get_rom_path(game)))
    buttons = machine.getMinimalActionSet()
    rng = np.random.default_rng(1)
    action_N = rng.integers(len(buttons), size=FRAMES_PER_GAME).astype(np.uint8)
    reward_N = np.zeros(FRAMES_PER_GAME, np.float32)
    ended_N = np.zeros(FRAMES_PER_GAME, bool)
    frames = []
    for frame, action in enumerate(action_N):
        if screens:
            picture = Image.fromarray(machine.getScreenGrayscale())
            picture = picture.resize((SCREEN_PIXELS, SCREEN_PIXELS), Image.Resampling.BOX)
            frames.append(np.asarray(picture))
        else:
            frames.append(machine.getRAM().copy())
        reward_N[frame] = machine.act(buttons[action])
        ended_N[frame] = machine.game_over()
        if ended_N[frame]:
            machine.reset_game()
    return np.array(frames), action_N, reward_N, ended_N, len(buttons)


def _scaled(reward_N: np.ndarray) -> np.ndarray:
    return (reward_N / reward_N.std()).astype(np.float32)


def missing_memory(folder: Path) -> str | None:
    """What to do about missing data, if they are."""
    return None if ARCHIVE.is_file() else f"{ARCHIVE} is missing; install mara_ray again"


def missing_machine(folder: Path) -> str | None:
    """What to do about a missing emulator, if it is."""
    return None if find_spec("ale_py") else f"the package ale-py is missing; {REMEDY}"


def draw_memory_values(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """Some frames of one game by the machine's memory, and the standardised returns that followed.

    Args:
        hyperparameters: `game`, number of `examples`, and `discount` of the returns.
        rng: the stream drawn from.
        folder: not looked at: these data ship with the package.
    """
    play = load_memory(hyperparameters["game"])
    rows = rng.permutation(len(play.frame))[: hyperparameters["examples"]]
    return Examples(
        torch.from_numpy(play.frame[rows]),
        torch.from_numpy(play.returns(hyperparameters["discount"])[rows, None]),
        input_shape=play.frame.shape[1:],
        num_outputs=1,
        prepare=torch.Tensor.float,
        loss=functional.mse_loss,
    )


def draw_screen_values(hyperparameters: dict[str, Any], rng: np.random.Generator, folder: Path) -> Examples:
    """As `draw_memory_values`, by the last four screens; played on first use in each process."""
    play = play_screens(hyperparameters["game"])
    last = np.arange(SCREENS_PER_INPUT) - SCREENS_PER_INPUT + 1
    choices = len(play.frame) - SCREENS_PER_INPUT
    rows = SCREENS_PER_INPUT + rng.permutation(choices)[: hyperparameters["examples"]]
    return Examples(
        torch.from_numpy(play.frame[rows[:, None] + last]),
        torch.from_numpy(play.returns(hyperparameters["discount"])[rows, None]),
        input_shape=(SCREENS_PER_INPUT, SCREEN_PIXELS, SCREEN_PIXELS),
        num_outputs=1,
        prepare=partial(torch.mul, other=torch.tensor(1 / 255)),
        loss=functional.mse_loss,
    )
