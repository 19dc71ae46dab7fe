"""Jobs on a head of their own, with a token: stopped, resumed, their exit codes; nobody else gets in."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from mara_ray.job import STATUS_FILE

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
TOY = (
    "curves.configurations={img_mlp: 12}",
    "predictor.epochs=1",
    "allocator.updates=1",
    "evaluation.rivals=[]",
    "evaluation.sets=[id]",
    "evaluation.loads=[0.2]",
    "evaluation.methods=[mara, lara, fifo]",
    "allocator.policies=[mara]",
)
PORTS = ("port", "dashboard-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port")
PATIENCE_S = 100.0
pytestmark = [pytest.mark.ray, pytest.mark.slow]


@dataclass
class Head:
    """A head that runs: where its dashboard answers, and what opens it."""

    url: str
    token: str
    environment: dict[str, str]

    def ask(self, path: str, token: str | None, method: str = "GET") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.url + path, headers=headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def ray(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(RAY), "job", arguments[0], "--address", self.url, *arguments[1:]]
        return subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def submit(self, name: str, out: str, *arguments: str, wait: bool = True) -> str:
        """What the job said."""
        settings = [part for setting in TOY for part in ("--set", setting)]
        job = [sys.executable, "jobs/0_run.py", "--preset", str(ROOT / "tests" / "tiny.yaml"), "--out", out]
        submitted = self.ray(
            *("submit", "--submission-id", name, *([] if wait else ["--no-wait"]), "--working-dir", "."),
            *("--runtime-env", "jobs/runtime_env.yaml", "--", *job, *settings, *arguments),
        )
        return submitted.stdout + submitted.stderr

    def logs(self, name: str) -> str:
        return self.ask(f"/api/jobs/{name}/logs", self.token)["logs"]

    def info(self, name: str) -> dict[str, Any]:
        return self.ask(f"/api/jobs/{name}", self.token)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def end_all(folder: Path, token: str) -> None:
    """End what the head left: processes that name its folder, or hold its token."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            named = any(str(folder) in part for part in process.cmdline())
            if named or process.environ().get("RAY_AUTH_TOKEN") == token:
                process.kill()


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="mr", dir="/tmp"))  # short: it holds sockets
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PYTHONPATH")}
    token = secrets.token_hex(32)
    environment = kept | {
        "HOME": str(folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
    }
    process = subprocess.Popen(
        [
            *(str(RAY), "start", "--head", "--block", "--num-cpus=2", "--node-ip-address=127.0.0.1"),
            *("--dashboard-host=127.0.0.1", f"--temp-dir={folder}", "--object-store-memory=100000000"),
            *(f"--{name}={port}" for name, port in ports.items()),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    head = Head(f"http://127.0.0.1:{ports['dashboard-port']}", token, environment)
    try:
        wait_until(lambda: head.ask("/api/version", token), "the head answers")
        yield head
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
        process.kill()
        end_all(folder, token)
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.2)
    raise AssertionError(f"waited in vain until {what}")


def test_nobody_else_gets_in(head: Head) -> None:
    for token in (None, "0" * 64):
        with pytest.raises(urllib.error.HTTPError) as refused:
            head.ask("/api/jobs/", token)
        assert refused.value.code in ((401,) if token is None else (401, 403))


def test_a_job_is_stopped_and_goes_on(head: Head, tmp_path: Path) -> None:
    out = tmp_path / "out"
    head.submit("first", f"file://{out}", wait=False)

    def curves_are_there() -> bool:
        assert head.info("first")["status"] in ("PENDING", "RUNNING"), head.logs("first")
        return '"curves"' in (out / "manifest.json").read_text()

    wait_until(curves_are_there, "the curves are there")
    head.ask(
        "/api/jobs/first/stop", head.token, "POST"
    )  # `ray job stop` starts so slowly that the run may end
    wait_until(lambda: head.info("first")["status"] == "STOPPED", "the job is stopped")
    stopped = json.loads((out / STATUS_FILE).read_text())
    assert stopped["exit_code"] == 128 + signal.SIGTERM
    assert "curves" in stopped["hashes"] and "report" not in stopped["hashes"]
    said = head.submit("second", f"file://{out}")
    assert head.info("second")["driver_exit_code"] == 0, said
    assert "report: done" in said and "curves: done" not in said
    status = json.loads((out / STATUS_FILE).read_text())
    assert status["exit_code"] == 0 and status["hashes"]["curves"] == stopped["hashes"]["curves"]
    assert "mara" in json.loads((out / "summary.json").read_text())["methods"]
    assert (out / "report.html").is_file()


def test_the_users_fault_is_told(head: Head, tmp_path: Path) -> None:
    said = head.submit("wrong", str(tmp_path), "--set", "curves.colour=1")
    assert "curves.colour" in said
    info = head.info("wrong")
    assert (info["status"], info["driver_exit_code"]) == ("FAILED", 2)
    assert json.loads((tmp_path / STATUS_FILE).read_text())["exit_code"] == 2
