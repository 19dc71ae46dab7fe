"""The jobs of a live run: what to train, to which loss, until when."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mara_ray.artifacts import hash_of
from mara_ray.errors import UserError
from mara_ray.live.entries import check_entry
from mara_ray.mappings import read_mapping

MOST_POINTS = 300  # as the curves have that the predictor learned from

UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
DURATION = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*(s|m|min|h)\s*$")


class Seconds(float):
    """A span of wall-clock time, told from a number of steps by its type."""


def _moment(value: Any) -> int | Seconds:
    """Read `120` (steps) or "90s", "5min", "1h"."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError('give whole steps, as in 120, or a time, as in "90s", "5min" or "1h"')
    return Seconds(float(match[1]) * UNITS_S[match[2]])


def _time(value: Any) -> Seconds:
    moment = _moment(value)
    if not isinstance(moment, Seconds):
        raise ValueError('give a time, as in "90s" or "5min"')
    return moment


Moment = Annotated[Any, BeforeValidator(_moment)]


class Job(BaseModel):
    """One training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = Field(
        description="names the job, and its files"
    )
    entry: str = Field(
        description="module:name or file.py:name of a LearningTask, or of a generator function"
    )
    arguments: dict[str, Any] = Field({}, description="what the entry is called with")
    target: Annotated[float, Field(gt=0.0)] = Field(description="smoothed loss to get to")
    deadline: Moment = Field(description='steps from the arrival, or a time as "90s"')
    arrival: Moment = Field(0, description='step of the run, or a time as "10s", at which it is there')
    block_timeout: Annotated[Any, BeforeValidator(_time)] = Field(
        Seconds(600.0), description="a block that takes longer hangs, and the job fails"
    )


class Jobs(BaseModel):
    """All jobs of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    jobs: Annotated[tuple[Job, ...], Field(min_length=1)] = Field(description="in order of their numbers")
    steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="the run ends at this step; null is when the last job has left"
    )
    points: Annotated[int, Field(ge=8, le=5000)] = Field(
        MOST_POINTS, description="blocks (and one) after which a job gets no further"
    )

    @property
    def content_hash(self) -> str:
        """What was asked for, as 16 digits."""
        jobs = [{**dict(job), "timed": isinstance(job.deadline, Seconds)} for job in self.jobs]
        return hash_of(jobs, self.steps, self.points)


def read_jobs(path: Path) -> Jobs:
    """Read and check a jobs file; entries in files are looked for beside it.

    Raises:
        UserError: it is missing, no YAML, or says what cannot be; one line.
    """
    tree = read_mapping(path, "jobs", "see examples/jobs.yaml")
    try:
        jobs = Jobs.model_validate(tree)
    except ValidationError as error:
        raise UserError(f"{path}: {_first_problem(error)}") from error
    names: set[str] = set()
    for number, job in enumerate(jobs.jobs):
        if job.name in names:
            raise UserError(f"{path}: jobs.{number}.name: {job.name!r} is there twice; choose another")
        names.add(job.name)
        if not job.deadline > 0:
            raise UserError(f"{path}: jobs.{number}.deadline: {job.deadline} is no time at all; give some")
    located = [_located(job, path, f"jobs.{number}.entry") for number, job in enumerate(jobs.jobs)]
    # Numbered by arrival, as the simulator numbers its tasks; a second counts as a step here.
    return jobs.model_copy(update={"jobs": tuple(sorted(located, key=lambda job: float(job.arrival)))})


def _located(job: Job, path: Path, field: str) -> Job:
    """The job with the absolute path of its file."""
    place, _, name = job.entry.rpartition(":")
    if place.endswith(".py"):
        place = str((path.absolute().parent / place).resolve())
    located = job.model_copy(update={"entry": f"{place}:{name}"})
    reason = check_entry(located.entry)
    if reason is not None:
        raise UserError(f"{path}: {field}: {job.entry!r} {reason}")
    return located


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = Job.model_fields if len(problem["loc"]) > 1 else Jobs.model_fields
        return f"{field}: unknown key; use some of {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{field}: is missing; add it"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{field}: {problem['input']!r}: {message[0].lower()}{message[1:]}"
