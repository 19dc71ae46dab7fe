"""Reference levels no method can pass: independent feasibility and the clairvoyant optimum.

Axis letters: B episodes, J tasks of an episode, I intervals between event points, M nodes, T steps.
The clairvoyant knows every arrival and every demand beforehand. It may preempt and migrate freely,
and it ignores the K slots and the cost of switching, so where those bind it is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow


@dataclass(frozen=True)
class Tasks:
    """The tasks of one episode, as a clairvoyant sees them.

    Attributes:
        release_J: first step at which the task can be served, int.
        deadline_J: steps d - 1 and before count, int.
        demand_J: service needed, in steps of a speed-1 node: one less than the points needed, since
            a task has seen one point when it arrives. A huge number stands for never.
    """

    release_J: np.ndarray
    deadline_J: np.ndarray
    demand_J: np.ndarray

    def feasible_alone(self, speed: float = 1.0) -> np.ndarray:
        """Whether each task could finish if it had a node of this speed to itself, bool (J,)."""
        return self.demand_J <= speed * (self.deadline_J - self.release_J)


@dataclass(frozen=True)
class Optimum:
    """The clairvoyant optimum of one episode.

    Attributes:
        chosen_J: the tasks that are finished, bool; the best set found.
        upper: a proven upper bound on how many can be; equals the set's size unless time ran out.
    """

    chosen_J: np.ndarray
    upper: int

    @property
    def proven(self) -> bool:
        """Whether the set is known to be as large as can be."""
        return int(self.chosen_J.sum()) == self.upper


def independent_feasibility(tasks: Tasks, node_speed_M: np.ndarray) -> int:
    """How many tasks could finish if each had the fastest node to itself."""
    return int(tasks.feasible_alone(float(np.max(node_speed_M))).sum())


def clairvoyant_optimum(tasks: Tasks, node_speed_M: np.ndarray, seconds: float) -> Optimum:
    """P | pmtn, r_j | sum U_j as a mixed-integer program over the intervals between events.

    With x_ki the service task k gets in interval i of length L_i: maximise the sum of y_k subject to
    sum_i x_ki = w_k y_k, sum_k x_ki <= M L_i and 0 <= x_ki <= L_i y_k. With speeds, M and L_i are
    scaled by the speeds' sum and maximum: exact for equal nodes, an upper bound otherwise.

    Args:
        tasks: the episode.
        node_speed_M: points of service per step of each node.
        seconds: time limit of the solver.
    """
    chosen_J = np.zeros(len(tasks.release_J), bool)
    fastest = float(np.max(node_speed_M))
    able = np.flatnonzero(tasks.feasible_alone(fastest))
    if len(able) == 0:
        return Optimum(chosen_J, 0)
    start_I, length_I = _intervals(tasks, able)
    task_P, interval_P = _pairs(tasks, able, start_I)
    num_y, num_x, num_i = len(able), len(task_P), len(start_I)
    y, x, ones = task_P, num_y + np.arange(num_x), np.ones(num_x)
    served = coo_array((ones, (task_P, x)), (num_y, num_y + num_x)).tolil()
    served[np.arange(num_y), np.arange(num_y)] = -tasks.demand_J[able]
    capacity = coo_array((ones, (interval_P, x)), (num_i, num_y + num_x))
    rows = np.arange(num_x)
    alone = coo_array((ones, (rows, x)), (num_x, num_y + num_x)) - coo_array(
        (fastest * length_I[interval_P], (rows, y)), (num_x, num_y + num_x)
    )
    result = milp(
        c=np.concatenate([-np.ones(num_y), np.zeros(num_x)]),
        integrality=np.concatenate([np.ones(num_y), np.zeros(num_x)]),
        bounds=Bounds(0, np.concatenate([np.ones(num_y), fastest * length_I[interval_P]])),
        constraints=[
            LinearConstraint(served.tocsr(), 0, 0),
            LinearConstraint(capacity.tocsr(), -np.inf, float(np.sum(node_speed_M)) * length_I),
            LinearConstraint(alone.tocsr(), -np.inf, 0),
        ],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if result.x is not None:
        chosen_J[able] = result.x[:num_y] > 0.5
    dual = result.mip_dual_bound
    upper = num_y if dual is None or not np.isfinite(dual) else int(np.floor(-dual + 1e-6))
    return Optimum(chosen_J, max(upper, int(chosen_J.sum())))


def unit_schedule(tasks: Tasks, chosen_J: np.ndarray, num_nodes: int) -> np.ndarray:
    """A step-by-step schedule on equal speed-1 nodes that finishes exactly the chosen tasks.

    A maximum flow (whole numbers) shares the service out over the intervals; McNaughton's
    wrap-around rule then lays each interval's shares end to end over the nodes, and no task meets
    itself since none has more than the interval's length.

    Returns:
        int64 (T, M), T the last deadline: the task each node serves, -1 for none.

    Raises:
        ValueError: the chosen tasks cannot all be finished.
    """
    chosen = np.flatnonzero(chosen_J)
    horizon = int(tasks.deadline_J.max(initial=0))
    node_task_TM = np.full((horizon, num_nodes), -1, np.int64)
    if len(chosen) == 0:
        return node_task_TM
    start_I, length_I = _intervals(tasks, chosen)
    task_P, interval_P = _pairs(tasks, chosen, start_I)
    service_P = _share_out(tasks.demand_J[chosen], length_I, task_P, interval_P, num_nodes)
    for number, (start, length) in enumerate(zip(start_I, length_I, strict=True)):
        here = interval_P == number
        tape = np.repeat(chosen[task_P[here]], service_P[here])
        tape = np.pad(tape, (0, num_nodes * length - len(tape)), constant_values=-1)
        node_task_TM[start : start + length] = tape.reshape(num_nodes, length).T
    return node_task_TM


def _intervals(tasks: Tasks, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of the intervals between the releases and deadlines of some tasks."""
    events = np.unique(np.concatenate([tasks.release_J[among], tasks.deadline_J[among]]).astype(np.int64))
    return events[:-1], np.diff(events)


def _pairs(tasks: Tasks, among: np.ndarray, start_I: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which task (numbered within `among`) may be served in which interval, as two index arrays."""
    open_JI = (tasks.release_J[among, None] <= start_I) & (start_I < tasks.deadline_J[among, None])
    task_P, interval_P = np.nonzero(open_JI)
    return task_P, interval_P


def _share_out(
    demand_J: np.ndarray, length_I: np.ndarray, task_P: np.ndarray, interval_P: np.ndarray, num_nodes: int
) -> np.ndarray:
    """Whole steps of service for every (task, interval) pair that give each task its demand."""
    num_tasks, num_intervals = len(demand_J), len(length_I)
    source, sink = num_tasks + num_intervals, num_tasks + num_intervals + 1
    tails = np.concatenate([np.full(num_tasks, source), task_P, num_tasks + np.arange(num_intervals)])
    heads = np.concatenate([np.arange(num_tasks), num_tasks + interval_P, np.full(num_intervals, sink)])
    capacity = np.concatenate([demand_J, length_I[interval_P], num_nodes * length_I]).astype(np.int32)
    graph = csr_array((capacity, (tails, heads)), shape=(sink + 1, sink + 1))
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value < int(demand_J.sum()):
        raise ValueError(f"chosen tasks: only {flow.flow_value} of {demand_J.sum()} steps of service fit")
    service_P: np.ndarray = np.asarray(flow.flow.toarray()[task_P, num_tasks + interval_P])
    return service_P
