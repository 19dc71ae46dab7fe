from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mara_ray.evaluation.bounds import Tasks, clairvoyant_optimum, independent_feasibility, unit_schedule

NEVER = 2**30


def make_tasks(*rows: tuple[int, int, int]) -> Tasks:
    release, deadline, demand = (np.array(column) for column in zip(*rows, strict=True))
    return Tasks(release, deadline, demand)


def brute_force(tasks: Tasks, num_nodes: int) -> int:
    """The optimum by trying every choice of tasks in every step."""
    rows = list(zip(tasks.release_J.tolist(), tasks.deadline_J.tolist(), strict=True))
    end = max(deadline for _, deadline in rows)

    @cache
    def best(step: int, left: tuple[int, ...]) -> int:
        if step == end:
            return sum(need == 0 for need in left)
        open_tasks = [k for k, (r, d) in enumerate(rows) if r <= step < d and left[k] > 0]
        size = min(num_nodes, len(open_tasks))
        outcomes = []
        for served in combinations(open_tasks, size):
            after = tuple(need - (k in served) for k, need in enumerate(left))
            outcomes.append(best(step + 1, after))
        return max(outcomes)

    return best(0, tuple(tasks.demand_J.tolist()))


def check_schedule(tasks: Tasks, chosen_J: np.ndarray, num_nodes: int) -> None:
    node_task_TM = unit_schedule(tasks, chosen_J, num_nodes)
    for step, row in enumerate(node_task_TM):
        busy = row[row >= 0]
        assert len(set(busy)) == len(busy), "a task on two nodes at once"
        assert (tasks.release_J[busy] <= step).all() and (step < tasks.deadline_J[busy]).all()
    served_J = np.bincount(node_task_TM[node_task_TM >= 0], minlength=len(chosen_J))
    assert (served_J == np.where(chosen_J, tasks.demand_J, 0)).all()


def test_one_node_two_tasks_by_hand() -> None:
    both = make_tasks((0, 4, 2), (0, 4, 2))
    clash = make_tasks((0, 3, 2), (0, 3, 2))
    assert clairvoyant_optimum(both, np.ones(1), 5.0).upper == 2
    assert clairvoyant_optimum(clash, np.ones(1), 5.0).upper == 1
    assert independent_feasibility(clash, np.ones(1)) == 2


def test_wrap_around_is_needed_and_right() -> None:
    """Three tasks of 2 steps on two nodes in 3 steps: only a migrating task makes it fit."""
    tasks = make_tasks((0, 3, 2), (0, 3, 2), (0, 3, 2))
    optimum = clairvoyant_optimum(tasks, np.ones(2), 5.0)
    assert optimum.upper == 3 and optimum.proven
    check_schedule(tasks, optimum.chosen_J, 2)


def test_a_task_cannot_be_on_two_nodes() -> None:
    assert clairvoyant_optimum(make_tasks((0, 3, 4)), np.ones(4), 5.0).upper == 0


def test_never_and_nothing() -> None:
    nothing = clairvoyant_optimum(make_tasks((0, 5, NEVER), (2, 4, 3)), np.ones(2), 5.0)
    assert nothing.upper == 0 and not nothing.chosen_J.any() and nothing.proven
    empty = Tasks(*(np.zeros(0, int) for _ in range(3)))
    assert clairvoyant_optimum(empty, np.ones(2), 5.0).upper == 0
    assert unit_schedule(empty, np.zeros(0, bool), 2).shape == (0, 2)


def test_a_faster_node_raises_the_bound() -> None:
    tasks = make_tasks((0, 3, 5), (0, 3, 5))
    assert clairvoyant_optimum(tasks, np.ones(2), 5.0).upper == 0
    assert clairvoyant_optimum(tasks, np.array([2.0, 1.0]), 5.0).upper == 1
    assert clairvoyant_optimum(tasks, np.array([2.0, 2.0]), 5.0).upper == 2


def test_an_impossible_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="only 3 of 4"):
        unit_schedule(make_tasks((0, 3, 2), (0, 3, 2)), np.ones(2, bool), 1)


@st.composite
def small_episodes(draw: st.DrawFn) -> Tasks:
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        release = draw(st.integers(0, 4))
        rows.append((release, release + draw(st.integers(1, 5)), draw(st.integers(0, 5))))
    return make_tasks(*rows)


@settings(max_examples=80, deadline=None)
@given(small_episodes(), st.integers(1, 3))
def test_optimum_is_brute_force(tasks: Tasks, num_nodes: int) -> None:
    optimum = clairvoyant_optimum(tasks, np.ones(num_nodes), 5.0)
    assert optimum.proven
    assert optimum.upper == brute_force(tasks, num_nodes)
    assert optimum.upper <= independent_feasibility(tasks, np.ones(num_nodes))
    check_schedule(tasks, optimum.chosen_J, num_nodes)
