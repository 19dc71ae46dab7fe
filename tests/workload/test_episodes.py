import numpy as np
import pytest

from mara_ray.config import WorkloadConfig
from mara_ray.errors import UserError
from mara_ray.workload.episodes import PADDING, Workload, draw_workload

CONFIG = WorkloadConfig(episode_steps=200, window_steps=40)
ROWS = np.array([3, 5, 8])


def draw(num_episodes=50, load=0.1, config=CONFIG, seed=0):
    return draw_workload(config, ROWS, load, num_episodes, seed, "evaluation", "root_0")


def int32(rows):
    return np.array(rows, np.int32)


def workload_of(**changes):
    arrays = {
        "arrival_BJ": int32([[0, 3], [2, PADDING]]),
        "deadline_BJ": int32([[5, 4], [9, PADDING]]),
        "curve_BJ": int32([[0, 1], [2, PADDING]]),
        "level_BJ": int32([[0, 0], [1, PADDING]]),
        "num_tasks_B": int32([2, 1]),
    }
    return Workload(**(arrays | changes))


def test_every_drawn_task_is_as_configured():
    workload = draw()
    real_BJ = workload.real_BJ
    arrival, deadline = workload.arrival_BJ[real_BJ], workload.deadline_BJ[real_BJ]
    assert real_BJ.sum() == workload.num_tasks_B.sum() == pytest.approx(50 * 200 * 0.1, rel=0.15)
    assert np.isin(workload.curve_BJ[real_BJ], ROWS).all() and len(set(workload.curve_BJ[real_BJ])) == 3
    assert set(workload.level_BJ[real_BJ]) == set(range(20))
    assert deadline.max() == 200
    uncut = deadline < 200
    assert set((deadline - arrival)[uncut]) == set(range(36, 45))
    assert (workload.arrival_BJ[~real_BJ] == PADDING).all()


def test_certain_arrivals_come_in_every_step():
    workload = draw(num_episodes=1, load=1.0)
    assert workload.arrival_BJ[0].tolist() == list(range(200))


def test_an_episode_without_tasks_is_possible():
    workload = draw(num_episodes=2, load=0.0)
    assert workload.num_tasks_B.tolist() == [0, 0]
    assert not workload.real_BJ.any()


def test_initial_tasks_are_there_at_step_0_beside_those_that_arrive():
    workload = draw(load=0.0, config=CONFIG.model_copy(update={"initial_tasks": 6}))
    assert (workload.num_tasks_B == 6).all() and (workload.arrival_BJ == 0).all()
    assert (np.ptp(workload.deadline_BJ, axis=1) > 0).any(), "each draws a window of its own"
    both = draw(config=CONFIG.model_copy(update={"initial_tasks": 6}))
    assert (both.num_tasks_B == draw().num_tasks_B + 6).all()
    assert (both.arrival_BJ[:, 6:] == draw().arrival_BJ).all(), "the arrivals are the same"


def test_tasks_whose_deadline_is_after_the_end_are_cut_or_left_out():
    cut, left_out = draw(), draw(config=CONFIG.model_copy(update={"beyond_end": "leave_out"}))
    assert left_out.num_tasks_B.sum() < cut.num_tasks_B.sum()
    for episode in range(cut.num_episodes):
        before, after = (
            set(zip(w.arrival_BJ[episode].tolist(), w.deadline_BJ[episode].tolist(), strict=True))
            for w in (cut, left_out)
        )
        missing = before - after - {(PADDING, PADDING)}
        assert after <= before | {(PADDING, PADDING)}
        assert all(deadline == 200 and arrival > 200 - 45 for arrival, deadline in missing)
    window_BJ = (left_out.deadline_BJ - left_out.arrival_BJ)[left_out.real_BJ]
    assert set(window_BJ.tolist()) == set(range(36, 45)), "no window is cut short"


def test_an_episode_does_not_depend_on_how_many_are_drawn():
    few, many = draw(num_episodes=3), draw(num_episodes=30)
    for episode in range(3):
        count = few.num_tasks_B[episode]
        for name in ("arrival_BJ", "deadline_BJ", "curve_BJ", "level_BJ"):
            few_J, many_J = getattr(few, name)[episode], getattr(many, name)[episode]
            assert few_J[:count].tolist() == many_J[:count].tolist()


def test_seed_and_hash():
    assert draw().content_hash == draw().content_hash
    assert draw().content_hash != draw(seed=1).content_hash


def test_save_and_load(tmp_path):
    workload = draw()
    for name in ("one.npz", "two.npz"):
        workload.save(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert Workload.load(tmp_path / "one.npz").content_hash == workload.content_hash


def test_take():
    workload = draw()
    taken = workload.take(np.array([4, 1]))
    assert taken.num_episodes == 2
    assert taken.arrival_BJ[0].tolist() == workload.arrival_BJ[4].tolist()


def test_no_curve_to_draw_from():
    with pytest.raises(UserError, match="no accepted curve"):
        draw_workload(CONFIG, np.array([], int), 0.1, 1, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deadline_BJ": int32([[5, 3], [9, -1]])}, "deadline_BJ: 3 of task 1 in episode 0 is not after"),
        ({"arrival_BJ": int32([[4, 3], [2, -1]])}, "arrival_BJ: 3 of task 1 in episode 0 is before the task"),
        ({"arrival_BJ": int32([[-2, 3], [2, -1]])}, "arrival_BJ: -2 of task 0 in episode 0"),
        ({"curve_BJ": int32([[0, 1], [-1, -1]])}, "curve_BJ: -1 of task 0 in episode 1"),
        ({"level_BJ": int32([[0, 1]])}, "level_BJ: int32"),
        ({"num_tasks_B": int32([2, 3])}, "num_tasks_B"),
        ({"arrival_BJ": np.zeros((2, 2))}, "arrival_BJ: float64"),
    ],
)
def test_an_impossible_workload_is_refused_with_the_field_named(changes, message):
    with pytest.raises(UserError, match=message):
        workload_of(**changes)


def test_unknown_curves_and_levels_are_refused():
    with pytest.raises(UserError, match="curve_BJ: 2 of task 0 in episode 1 is not among the 2"):
        workload_of().check_bank(num_curves=2, num_levels=2)
    with pytest.raises(UserError, match="level_BJ: 1 of task 0 in episode 1 is not among the 1"):
        workload_of().check_bank(num_curves=3, num_levels=1)
    workload_of().check_bank(num_curves=3, num_levels=2)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 truncated", b"not a zip at all"])
def test_a_damaged_file_is_refused(tmp_path, content):
    path = tmp_path / "workload.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"workload.npz is damaged"):
        Workload.load(path)


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="missing"):
        Workload.load(tmp_path / "none.npz")
    np.savez(tmp_path / "foreign.npz", something=np.zeros(3))
    with pytest.raises(UserError, match="damaged"):
        Workload.load(tmp_path / "foreign.npz")
