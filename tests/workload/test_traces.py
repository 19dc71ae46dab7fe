"""Traces become workloads, and a bad line is named."""

import numpy as np
import pytest

from mara_ray.config import SimulatorConfig, WorkloadConfig
from mara_ray.curves.bank import NEVER
from mara_ray.errors import UserError
from mara_ray.simulator.engine import Simulator
from mara_ray.simulator.state import CurveReplay
from mara_ray.workload.traces import SAMPLE_TRACE, read_trace, trace_workload

CONFIG = WorkloadConfig(episode_steps=100, window_steps=20)
NEEDED_CG = np.array([[6, 11, NEVER], [6, 31, NEVER], [1, 300, 51]], np.int32)
HEADER = "submit_time,duration,deadline"


def written(tmp_path, *lines):
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def workload_of(path, config=CONFIG, rows=(0, 1, 2), seconds_per_step=60.0, seed=0):
    return trace_workload(read_trace(path), config, NEEDED_CG, np.array(rows), seconds_per_step, seed)


def test_times_become_steps_and_durations_the_nearest_demand(tmp_path):
    lines = [
        "user,duration,submit_time,deadline,status",
        "# a comment",
        "b,1700,1060,4000,Pass",
        "",
        "a,590,1000,1130,Failed",
        "c,99999,7059,99999,Pass",
    ]
    workload = workload_of(written(tmp_path, *lines))
    assert workload.num_tasks_B.tolist() == [2, 1], "a hundred steps make an episode"
    assert workload.arrival_BJ.tolist() == [[0, 1], [0, -1]]
    assert workload.deadline_BJ.tolist() == [[0 + 2, 1 + 49], [100, -1]]
    pairs = list(zip(workload.curve_BJ.ravel(), workload.level_BJ.ravel(), strict=True))
    assert pairs[:3] == [(0, 1), (1, 1), (2, 1)], "demands 10, 30 and, at most, 299"


def test_dates_are_as_good_as_seconds(tmp_path):
    dates = [
        "2017-10-09 07:02:00,590,2017-10-09 07:04:10",
        "2017-10-09T09:03:00+02:00,1700,2017-10-09 07:52:00",
    ]
    workload = workload_of(written(tmp_path, HEADER, *dates))
    assert workload.arrival_BJ.tolist() == [[0, 1]]
    assert workload.deadline_BJ.tolist() == [[2, 50]]


def test_equal_demands_are_drawn_from_by_the_seed(tmp_path):
    path = written(tmp_path, HEADER, *["0,300,9000"] * 20)
    one, same, other = (workload_of(path, seed=seed).curve_BJ.tolist() for seed in (0, 0, 1))
    assert one == same != other
    assert set(one[0]) == {0, 1} and set(workload_of(path, rows=(1, 2)).curve_BJ[0].tolist()) == {1}


def test_deadlines_after_the_end_may_be_left_out(tmp_path):
    path = written(tmp_path, HEADER, "0,600,6000", "60,600,6120")
    assert workload_of(path).deadline_BJ.tolist() == [[100, 100]]
    left_out = workload_of(path, config=CONFIG.model_copy(update={"beyond_end": "leave_out"}))
    assert left_out.num_tasks_B.tolist() == [1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["submit_time,duration"], r"line 1: the header has no, or more than one, 'deadline'"),
        ([HEADER, "0,60,90", "0,abc,90"], r"line 3: duration 'abc' is not a number of seconds$"),
        ([HEADER, "0,nan,90"], r"line 2: duration 'nan' is not a number"),
        ([HEADER, "", "# x", "0,0,90"], r"line 4: duration '0' is not over 0 seconds"),
        (
            [HEADER, "yesterday,60,90"],
            r"line 2: submit_time 'yesterday' is not a number of seconds or a date",
        ),
        ([HEADER, "0,60,"], r"line 2: deadline '' is not"),
        ([HEADER, "100,60,90"], r"line 2: deadline '90' is not after the submission"),
        ([HEADER, "0,60"], r"line 2: 2 cells under a header of 3"),
        ([HEADER, '0,60,"90'], r"is not a readable CSV file"),
        ([HEADER], r"has no job"),
        ([], r"has no job"),
    ],
)
def test_a_bad_line_is_named(tmp_path, lines, message):
    with pytest.raises(UserError, match=message) as caught:
        read_trace(written(tmp_path, *lines))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_trace_are_refused(tmp_path):
    with pytest.raises(UserError, match="is missing"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a readable CSV"):
        read_trace(tmp_path / "bytes.csv")


def test_what_cannot_be_mapped_is_refused(tmp_path):
    path = written(tmp_path, HEADER, "0,60,90")
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="seconds per step is not over 0"):
            workload_of(path, seconds_per_step=seconds)
    with pytest.raises(UserError, match="no curve meets"):
        trace_workload(read_trace(path), CONFIG, np.full((1, 2), NEVER), np.array([0]), 60.0, 0)


def test_the_sample_says_that_it_is_synthetic_and_can_be_played(toy_bank):
    assert "synthetic" in SAMPLE_TRACE.name and SAMPLE_TRACE.read_text().startswith("# SYNTHETIC")
    config = WorkloadConfig(window_steps=100)
    replay = CurveReplay.from_bank(toy_bank, config.target_fractions)
    rows = toy_bank.rows("id", "test")
    workload = trace_workload(read_trace(SAMPLE_TRACE), config, replay.points_needed_CG, rows, 60.0, 0)
    assert workload.num_tasks_B.sum() == 80 and workload.num_episodes > 1
    simulator = Simulator(SimulatorConfig(num_nodes=1, num_slots=1), 500, replay)
    simulator.reset(workload)
    while not simulator.done:
        simulator.step((simulator.state.slots.task >= 0).astype(np.int64))
    assert 0 < (simulator.state.outcomes.finished_BJ >= 0).sum() < 80
