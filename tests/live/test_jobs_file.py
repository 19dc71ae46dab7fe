"""Jobs files: what they may say, and the one line that a wrong one is answered with."""

import pytest
from typer.testing import CliRunner

from mara_ray.cli import app
from mara_ray.errors import UserError
from mara_ray.live.entries import make_entry
from mara_ray.live.jobs import Seconds, read_jobs
from mara_ray.live.method import check_name

GOOD = {"name": "a", "entry": "own.py:train", "target": "0.5", "deadline": "20"}
OWN = """
from beside import START
def train(speed=1):
    for block in range(100):
        yield START / (1 + speed * block)
"""


@pytest.fixture
def written(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "beside.py").write_text("START = 2.0\n")

    def write(top="", **changes):
        job = "\n".join(
            f"    {key}: {value}" for key, value in {**GOOD, **changes}.items() if value is not None
        )
        path = tmp_path / "jobs.yaml"
        path.write_text(f"{top}\njobs:\n  -\n{job}\n")
        return path

    return write


def test_moments_are_steps_or_times(written):
    (job,) = read_jobs(written(deadline='"1.5min"', arrival=3)).jobs
    assert job.deadline == Seconds(90) and isinstance(job.deadline, Seconds)
    assert job.arrival == 3 and not isinstance(job.arrival, Seconds)
    assert job.block_timeout == 600


def test_entries_are_found_beside_the_file(written, tmp_path):
    (job,) = read_jobs(written(arguments="{speed: 3}")).jobs
    task = make_entry(job.entry, job.arguments)
    assert [task.run_block(), task.run_block()] == [2.0, 0.5]


def test_jobs_are_numbered_by_arrival(written, tmp_path):
    path = written(arrival=7)
    path.write_text(
        path.read_text() + "  - {name: b, entry: own.py:train, target: 1, deadline: 3, arrival: 2}\n"
    )
    assert [job.name for job in read_jobs(path).jobs] == ["b", "a"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deadline": "soon"}, r"jobs\.0\.deadline: 'soon': give whole steps, as in 120, or a time"),
        ({"deadline": "0"}, r"jobs\.0\.deadline: 0 is no time at all"),
        ({"deadline": "-3"}, r"jobs\.0\.deadline: -3: give whole steps"),
        ({"target": "-1"}, r"jobs\.0\.target: -1: input should be greater than 0"),
        ({"target": None}, r"jobs\.0\.target: is missing; add it"),
        ({"goal": "1"}, r"jobs\.0\.goal: unknown key; use some of name, entry"),
        ({"name": "../a"}, r"jobs\.0\.name: '\.\./a': string should match"),
        ({"entry": "own.py"}, r"jobs\.0\.entry: 'own.py' is not of the form module:name"),
        ({"entry": "none.py:train"}, "names no file"),
        ({"entry": "own.py:tarin"}, "names nothing that .*own.py defines"),
        ({"entry": "no.such.module:f"}, r"names no module that is installed \(no.such.module\)"),
        ({"block_timeout": "5"}, 'block_timeout: 5: give a time, as in "90s"'),
        ({"top": "steps: 0"}, "steps: 0: input should be greater than or equal to 1"),
        ({"top": "stpes: 3"}, "stpes: unknown key; use some of jobs, steps, points"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(written, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        read_jobs(written(**changes))
    assert "\n" not in str(caught.value)


def test_a_name_twice_is_refused(written):
    path = written()
    path.write_text(path.read_text() + "  - {name: a, entry: own.py:train, target: 1, deadline: 3}\n")
    with pytest.raises(UserError, match=r"jobs\.1\.name: 'a' is there twice"):
        read_jobs(path)


@pytest.mark.parametrize(
    "text", ["", "- 1", "jobs: []", "jobs: {", "\x00", "jobs: [2024-01-05]", "2024-13-45"]
)
def test_what_is_no_jobs_file_is_refused(tmp_path, text):
    (tmp_path / "jobs.yaml").write_text(text)
    with pytest.raises(UserError, match="jobs"):
        read_jobs(tmp_path / "jobs.yaml")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_jobs(tmp_path / "none.yaml")


def test_methods_that_know_the_future_are_not_live():
    with pytest.raises(UserError, match="'oracle_online' is unknown"):
        check_name("oracle_online")
    check_name("mara_quantile")


def test_the_command_refuses_before_it_starts_anything(written):
    result = CliRunner().invoke(app, ["schedule", str(written(target="-1"))])
    assert isinstance(result.exception, UserError) and result.exception.exit_code == 2
