"""The simulator as RLlib sees it: agents `node_0` .. `node_{M-1}`, a step for every decision.

`BatchedEnv` runs B episodes in lockstep in NumPy; `NodesEnv` is the same world, one episode at a time,
behind RLlib's MultiAgentEnv. Steps whose outcome does not depend on the choice are passed over; their
rewards count towards the decision before them, so that (gamma being 1) returns stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from mara_ray import pretrained
from mara_ray.config import RunConfig
from mara_ray.curves.bank import CurveBank
from mara_ray.errors import UserError
from mara_ray.predictor.forecast import ForecastTable
from mara_ray.predictor.parametric import WLSPredictor
from mara_ray.simulator.decisions import Decisions, at_rows, nodes_alike, settled
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.observe import Observation, observe
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.episodes import PADDING, Workload, draw_workload


def agent_names(num_nodes: int) -> list[str]:
    """The RLlib agent of each node, in node order."""
    return [f"node_{node}" for node in range(num_nodes)]


@dataclass(frozen=True)
class World:
    """Frozen curves and forecasts, and the simulator's rules; loaded once per process.

    Attributes:
        train_rows, validation_rows: bank rows of the accepted ID curves of each split.
    """

    config: RunConfig
    replay: CurveReplay
    table: Any
    train_rows: np.ndarray
    validation_rows: np.ndarray

    @classmethod
    def load(cls, config: RunConfig, bank_path: Path, table_directory: Path) -> World:
        """Read the bank and map the forecast table.

        Raises:
            UserError: a file is missing or damaged, or a split holds no accepted ID curve.
        """
        bank = CurveBank.read(Path(bank_path))
        rows = {split: bank.rows("id", split) for split in ("train", "validation")}
        for split, found in rows.items():
            if len(found) == 0:
                raise UserError(
                    f"curve bank: {bank_path} has no accepted id curve to {split} on; generate more"
                )
        replay = CurveReplay.from_bank(bank, config.workload.target_fractions)
        table = ForecastTable.load(Path(table_directory))
        return cls(config, replay, table, rows["train"], rows["validation"])

    @classmethod
    def of_context(cls, env_config: dict[str, Any]) -> World:
        """Load the world that `env_config` names: `run`, `bank_path`, `table_directory`; or `run` alone.

        A function `prepare`, if there is one, is called first. Without paths it is the bank that ships, with
        WLS forecasts made on the spot.
        """
        if env_config.get("prepare"):
            env_config["prepare"]()
        if "bank_path" in env_config:
            return cls.load(*(env_config[key] for key in ("run", "bank_path", "table_directory")))
        config, bank = env_config["run"], CurveBank.read(pretrained.BANK)
        replay = CurveReplay.from_bank(bank, config.workload.target_fractions)
        table = ForecastTable.of(WLSPredictor(config.predictor.warmup_points), bank, replay.target_CG)
        return cls(config, replay, table, bank.rows("id", "train"), bank.rows("id", "validation"))

    def batched(self) -> BatchedEnv:
        """A fresh lockstep environment."""
        steps = self.config.workload.episode_steps
        simulator = Simulator(self.config.simulator, steps, self.replay)
        decisions = Decisions(nodes_alike(self.config.simulator), self.config.allocator.decision_steps)
        return BatchedEnv(simulator, self.table, decisions)

    def draw_training(self, num_episodes: int, *path: str | int) -> Workload:
        """Fresh training episodes at a path of the seed tree, under light and heavy load in turn."""
        return self._draw(self.train_rows, num_episodes, *path)

    def validation_workload(self) -> Workload:
        """The frozen episodes that choose the checkpoint, under the same loads."""
        number = self.config.allocator.validation_episodes
        return self._draw(self.validation_rows, number, "allocator", "validation")

    def _draw(self, curve_rows: np.ndarray, num_episodes: int, *path: str | int) -> Workload:
        workload, factors = self.config.workload, self.config.allocator.load_factors
        parts = [
            draw_workload(
                workload,
                curve_rows,
                min(1.0, factor * workload.arrival_probability),
                len(range(number, num_episodes, len(factors))),
                self.config.seed,
                *path,
                number,
            )
            for number, factor in enumerate(factors)
        ]
        return _in_turn(parts)


def _in_turn(parts: list[Workload]) -> Workload:
    """One episode of each part after another: all first ones, all second ones, and so on."""
    width = max(part.arrival_BJ.shape[1] for part in parts)

    def joined(name: str) -> np.ndarray:
        arrays = [getattr(part, name) for part in parts]
        padded = [np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=PADDING) for a in arrays]
        return np.concatenate(padded)

    names = ("arrival_BJ", "deadline_BJ", "curve_BJ", "level_BJ")
    num_tasks_B = np.concatenate([part.num_tasks_B for part in parts])
    whole = Workload(**{name: joined(name) for name in names}, num_tasks_B=num_tasks_B)
    place = [(episode, number) for number, part in enumerate(parts) for episode in range(part.num_episodes)]
    return whole.take(np.array(sorted(range(len(place)), key=place.__getitem__)))


class BatchedEnv:
    """B episodes in lockstep."""

    def __init__(self, simulator: Simulator, table: Any, decisions: Decisions) -> None:
        self.simulator = simulator
        self._table, self._decisions = table, decisions

    def reset(self, workload: Workload) -> None:
        """Start the episodes of a workload."""
        self.simulator.reset(workload)
        self._decisions.reset()

    @property
    def num_completed_B(self) -> np.ndarray:
        """Tasks completed so far, int (B,)."""
        return (self.simulator.state.outcomes.finished_BJ >= 0).sum(1)

    @property
    def done(self) -> bool:
        """Whether step T is reached."""
        return bool(self.simulator.done)

    def observe(self) -> tuple[np.ndarray, Observation]:
        """The numbers R of the episodes with a decision to make, and the observation of all B."""
        observation = observe(self.simulator, self._table)
        return self._decisions.due(observation), observation

    def step(self, rows: np.ndarray, action_RM: np.ndarray, observation: Observation) -> np.ndarray:
        """Carry the decisions of `rows` out, and what is held or forced elsewhere; the reward, (B,)."""
        return self.simulator.step(self._decisions.complete(rows, action_RM, observation)).reward_B


class NodesEnv(MultiAgentEnv):
    """One episode behind RLlib's API. Every node observes the whole state and gets the team's reward.

    `env_config` is that of `World.of_context`. Choices that clash are `settled`.
    """

    def __init__(self, env_config: dict[str, Any]) -> None:
        super().__init__()
        world = World.of_context(env_config)
        self._world, self.batched = world, world.batched()
        simulator = world.config.simulator
        self.possible_agents = agent_names(simulator.num_nodes)
        self.agents = self.possible_agents
        self._episode, self._seed = -1, world.config.seed
        self.action_spaces: dict[str, gym.Space] = {
            agent: gym.spaces.Discrete(simulator.num_slots + 1) for agent in self.possible_agents
        }
        space = self._observation_space()
        self.observation_spaces = {agent: space for agent in self.possible_agents}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Draw a fresh training episode that has a decision, and go to the first.

        The information given to every node holds `reward_before`, what was earned until then.
        """
        if seed is not None:
            self._seed, self._episode = seed, -1
        while True:
            self._episode += 1
            self.batched.reset(self._world.draw_training(1, "env", self._seed, self._episode))
            reward = self._advance()
            if not self.batched.done:
                return self._shared(self._arrays()), self._shared({"reward_before": reward})

    def step(self, action_dict: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        """Do one decision and go on to the next.

        Raises:
            UserError: before `reset` or after the end; or as `settled` raises it.
        """
        if self._episode < 0:
            raise UserError("step: no episode has started; reset the environment first")
        chosen = [action_dict.get(agent) for agent in self.possible_agents]
        action_1M = settled(chosen, self._observation.active_BK[0])[None]
        reward = float(self.batched.step(np.array([0]), action_1M, self._observation)[0]) + self._advance()
        ended = {"__all__": self.batched.done}
        return self._shared(self._arrays()), self._shared(reward), ended, {"__all__": False}, {}

    def _advance(self) -> float:
        """Pass over the steps without a choice; returns their reward."""
        reward = 0.0
        rows, self._observation = self.batched.observe()
        while len(rows) == 0 and not self.batched.done:
            none_0M = np.empty((0, len(self.possible_agents)), np.int64)
            reward += float(self.batched.step(rows, none_0M, self._observation)[0])
            rows, self._observation = self.batched.observe()
        return reward

    def _shared(self, value: Any) -> dict[str, Any]:
        return {agent: value for agent in self.possible_agents}

    def _arrays(self) -> dict[str, np.ndarray]:
        episode = at_rows(self._observation, np.array([0]))
        return {
            field.name: np.asarray(getattr(episode, field.name)[0], np.float32).reshape(-1)
            for field in fields(episode)
            if "_B" in field.name
        }

    def _observation_space(self) -> gym.spaces.Dict:
        self.batched.reset(self._world.draw_training(1, "env", "shapes"))
        self._advance()
        shapes = {name: array.shape for name, array in self._arrays().items()}
        return gym.spaces.Dict(
            {name: gym.spaces.Box(-np.inf, np.inf, shape, np.float32) for name, shape in shapes.items()}
        )
