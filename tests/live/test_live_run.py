"""A run in one process: jobs that fail, deadlines by the clock, and runs that are cut off."""

import json
import time
from pathlib import Path

import pytest

from mara_ray.errors import UserError
from mara_ray.live.jobs import Job, Jobs
from mara_ray.live.journal import Journal
from mara_ray.live.outcome import outcome_of, write_chart, write_outcome
from mara_ray.live.states import load_state
from tests.live.live_worlds import LocalNodes, method_of, play

TASKS = Path(__file__).parent / "tasks.py"


def job_of(name, target=0.5, deadline=20, arrival=0, entry="Falling", **arguments):
    entry = f"{TASKS}:{entry}"
    return Job(name=name, entry=entry, arguments=arguments, target=target, deadline=deadline, arrival=arrival)


def by_name(run):
    return {job["name"]: job for job in outcome_of(run)["jobs"]}


def test_jobs_that_go_wrong_fail_alone(tmp_path):
    jobs = Jobs(
        jobs=(
            job_of("good"),
            job_of("raises", at=3, do="raise"),
            job_of("nan", at=2, do="nan"),
            job_of("leaves", at=1, do="leave", arrival=1),
            job_of("no-task", entry="number", arrival=2),
            job_of("ends", entry="falling", blocks=4, arrival=3),
            job_of("rises", speed=-0.01, deadline=30, arrival=3),
        )
    )
    run = play(jobs, method_of("edf"), tmp_path)
    jobs_by_name = by_name(run)
    assert {name: job["status"] for name, job in jobs_by_name.items()} == {
        "good": "met", "raises": "failed", "nan": "failed", "leaves": "failed", "no-task": "failed",
        "ends": "failed", "rises": "missed",
    }  # fmt: skip
    assert jobs_by_name["raises"]["reason"] == "RuntimeError: the data are gone"
    assert jobs_by_name["raises"]["blocks"] == 2
    assert jobs_by_name["nan"]["reason"] == "the loss of block 2 is nan"
    assert "let it be a mara_ray.LearningTask" in jobs_by_name["no-task"]["reason"]
    trace = (tmp_path / "failures" / "raises.txt").read_text()
    assert "tasks.py" in trace and "in act" in trace
    assert sorted(path.stem for path in (tmp_path / "failures").iterdir()) == [
        "ends", "leaves", "nan", "no-task", "raises",
    ]  # fmt: skip


def test_the_state_of_a_job_that_is_done_stays(tmp_path):
    run = play(Jobs(jobs=(job_of("good", target=0.7),)), method_of("fifo"), tmp_path)
    blocks = by_name(run)["good"]["blocks"]
    assert load_state(tmp_path / "states" / "good.state")["blocks"] == blocks > 2


class Hooked(LocalNodes):
    """Calls a function before every step's blocks."""

    def __init__(self, hook, *arguments):
        super().__init__(*arguments)
        self.hook, self.step = hook, 0

    def run(self, requests):
        self.hook(self.step)
        self.step += 1
        return super().run(requests)


class CutError(Exception):
    """The run ends here."""


@pytest.mark.parametrize("name", ["fifo", "laira", "mara"])
def test_a_run_that_was_cut_off_ends_as_if_it_were_not(tmp_path, name):
    jobs = Jobs(
        jobs=(
            job_of("a", target=0.3), job_of("b", target=0.4, speed=0.1, deadline=30),
            job_of("c", target=0.4, arrival=4, entry="falling"),
            job_of("d", target=0.3, arrival=4, at=4, do="raise"),
        )
    )  # fmt: skip

    def cut(step):
        if step == 8:
            raise CutError

    unbroken = play(jobs, method_of(name), tmp_path / "unbroken")
    with pytest.raises(CutError):
        play(jobs, method_of(name), tmp_path / "cut", lambda *arguments: Hooked(cut, *arguments))
    journal = tmp_path / "cut" / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"01234567 {torn")
    taken_up = play(jobs, method_of(name), tmp_path / "cut")
    for run, folder in ((unbroken, tmp_path / "unbroken"), (taken_up, tmp_path / "cut")):
        write_outcome(run, folder, 0, 0)
    files = [(tmp_path / folder / "outcome.json").read_bytes() for folder in ("unbroken", "cut")]
    assert files[0] == files[1]
    assert journal.read_bytes().startswith(whole)
    assert taken_up.node_task_TM == unbroken.node_task_TM
    # Nothing is left to do, and nothing is done.
    done = journal.read_bytes()
    again = play(
        jobs, method_of(name), tmp_path / "cut", lambda *arguments: Hooked(lambda _: 1 / 0, *arguments)
    )
    assert outcome_of(again) == outcome_of(unbroken)
    assert journal.read_bytes() == done


def test_a_folder_with_another_run_is_refused(tmp_path):
    play(Jobs(jobs=(job_of("a", target=0.7),)), method_of("fifo"), tmp_path)
    with pytest.raises(UserError, match="other jobs or settings"):
        play(Jobs(jobs=(job_of("a", target=0.6),)), method_of("fifo"), tmp_path)
    with pytest.raises(UserError, match="other jobs or settings"):
        play(Jobs(jobs=(job_of("a", target=0.7),)), method_of("edf"), tmp_path)


def test_a_damaged_journal_is_refused(tmp_path):
    play(Jobs(jobs=(job_of("a", target=0.7),)), method_of("fifo"), tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"losses", b"lossEs"), *lines[2:]]))
    with pytest.raises(UserError, match=r"line 2 of .* is damaged"):
        Journal(path)


def test_deadlines_by_the_clock(tmp_path):
    jobs = Jobs(
        jobs=(
            job_of("in-time", target=0.6, deadline="60s", pause_s=0.01),
            job_of("late", target=0.01, deadline="0.3s", pause_s=0.01),
            job_of("comes-late", target=0.6, deadline="60s", arrival="0.8s"),
        )
    )
    started = time.monotonic()
    run = play(jobs, method_of("edf"), tmp_path)
    assert 0.8 < time.monotonic() - started < 10
    outcome = by_name(run)
    assert [outcome[name]["status"] for name in ("in-time", "late", "comes-late")] == ["met", "missed", "met"]
    assert run.arrived[2][1] >= 0.8 > run.arrived[0][1]
    assert 5 < outcome["late"]["blocks"] < 40
    assert outcome["late"]["deadline"] == "0.3s"
    assert 0.01 <= run.clock.step_s(1) < 0.1
    write_chart(run, tmp_path / "gantt.png")
    assert (tmp_path / "gantt.png").read_bytes().startswith(b"\x89PNG")


def test_clock_deadlines_become_steps_by_what_a_step_takes(tmp_path):
    seen = []

    class Watching:
        name = "watching"

        def reset(self, num_episodes):
            pass

        def allocate(self, observation):
            seen.append(int(observation.deadline_BK[0, 0] - observation.time_B[0]))
            return edf.allocate(observation)

    edf = method_of("edf").allocator
    method = method_of("edf")
    object.__setattr__(method, "allocator", Watching())
    jobs = Jobs(jobs=(job_of("a", target=0.01, deadline="2s", pause_s=0.05),))
    play(jobs, method, tmp_path, num_nodes=1)
    assert 15 < seen[5] < 42  # 2 s less some, in steps of 0.05 s and what is around them
    assert seen[10] < seen[2]


def test_losses_at_or_under_zero_can_be_forecast(tmp_path):
    jobs = Jobs(jobs=(job_of("under", target=0.002, speed=-0.6, deadline=9),))
    run = play(jobs, method_of("lara"), tmp_path)
    assert (run.pool.losses.ema_RL > 0).all()


def test_a_job_gets_no_further_than_its_points(tmp_path):
    jobs = Jobs(jobs=(job_of("a", target=0.01, deadline=30),), points=8)
    run = play(jobs, method_of("fifo"), tmp_path)
    assert by_name(run)["a"]["blocks"] == 7
    assert len(run.node_task_TM) == 30


def test_the_journal_keeps_what_is_exact(tmp_path):
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append({"loss": 0.1 + 0.2, "tiny": 5e-324})
    with Journal(tmp_path / "journal.jsonl") as journal:
        assert journal.records == [{"loss": 0.1 + 0.2, "tiny": 5e-324}]
    line = (tmp_path / "journal.jsonl").read_bytes()
    assert json.loads(line.partition(b" ")[2]) == {"loss": 0.1 + 0.2, "tiny": 5e-324}
