"""A command as a Ray job: stopped cleanly, its exit code passed on, and told where its results lie."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mara_ray.artifacts import file_hash, hash_of, write_json
from mara_ray.cli import main
from mara_ray.errors import MaraError, UserError
from mara_ray.progress import say
from mara_ray.results import RESULTS_FILE
from mara_ray.storage import Storage, is_uri

STATUS_FILE = "status.json"
STOPPED = 128 + signal.SIGTERM  # the code that shells give to it


def run_job(*command: str) -> NoReturn:
    """Run `mara COMMAND` with this process's arguments, and leave status.json in its `--out`.

    The file has the command, its exit code (0; 1 the machine's fault; 2 the user's; 143 stopped), the seconds
    it took, and the hash of what each stage that is done has made. It is removed first, and written last: a
    job that was killed leaves none.
    """
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        stopped.set()
        sys.exit(STOPPED)

    signal.signal(signal.SIGTERM, stop)
    started = time.monotonic()
    try:
        out, _ = (_lasting(option, sys.argv[1:]) for option in ("--out", "--stages"))
        if out is None:
            raise _ends_with_the_job("--out")
        status = _Status(out)
        status.remove()
    except MaraError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    sys.argv[1:1] = command
    code = 0
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if stopped.is_set() and code:  # whatever broke on the way out
        code = STOPPED
        say("stopped; submit the job again to go on from here")
    try:
        status.write(" ".join(command), code, time.monotonic() - started)
    except MaraError as error:
        say(f"error: {error}")
        code = code or error.exit_code
    sys.exit(code)


def _lasting(option: str, arguments: list[str]) -> str | None:
    """Where an option says that something goes, if it is given; nothing that ends with the job will do."""
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            place = value if equals else "".join(arguments[number + 1 : number + 2])
            if is_uri(place) or Path(place).is_absolute():
                return place
            raise _ends_with_the_job(option)
    return None


def _ends_with_the_job(option: str) -> UserError:
    remedy = "an absolute path" if option == "--stages" else "a storage's URI, or an absolute path"
    return UserError(f"{option}: a job's own folder ends with it; give {remedy}")


class _Status:
    """The status file at a place, a directory or a storage's URI."""

    def __init__(self, out: str) -> None:
        self._directory = Path(out)
        self._storage = Storage(out.rstrip("/")) if is_uri(out) else None

    def remove(self) -> None:
        if self._storage is not None:
            self._storage.remove(STATUS_FILE)
        else:
            try:
                (self._directory / STATUS_FILE).unlink(missing_ok=True)
            except OSError as error:
                raise UserError(
                    f"--out: {self._directory} cannot be written ({error.strerror}); choose another"
                ) from error

    def write(self, command: str, exit_code: int, seconds: float) -> None:
        content = {
            "command": command,
            "exit_code": exit_code,
            "seconds": round(seconds, 1),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "hashes": self._hashes(exit_code),
        }
        if self._storage is not None:
            self._storage.write(STATUS_FILE, json.dumps(content, indent=2, sort_keys=True).encode())
        else:
            write_json(self._directory / STATUS_FILE, content)

    def _hashes(self, exit_code: int) -> dict[str, str]:
        """The outputs' hash of each stage that is done, or that of a sweep's table if it was made."""
        table, path = self._directory / RESULTS_FILE, self._directory / "manifest.json"
        if self._storage is None and not path.is_file():
            return {"results": file_hash(table)} if table.is_file() and exit_code == 0 else {}
        try:
            found = self._storage.read("manifest.json") if self._storage is not None else path.read_bytes()
            stages = json.loads(found)["stages"] if found else {}
            return {name: hash_of(record["outputs"]) for name, record in stages.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {}  # a damaged manifest; what went wrong with it is the command's to say
