"""One run: its configuration, the folders of its stages, and what the manifest says of them.

With a storage, the run's directory is a copy of it: fetched when the run starts, and sent again and again
while a stage works; the manifest last. So a run that was killed goes on on any machine that reaches the
storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mara_ray.artifacts import read_json, written_whole
from mara_ray.config import RunConfig
from mara_ray.errors import UserError
from mara_ray.experiments.membership import Membership
from mara_ray.storage import Storage, fetch_to_node, is_uri

INPUTS_FILE = "inputs.txt"
UNFINISHED = "unfinished"
TRACKING = "tracking"


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        config: its configuration.
        directory: where it works.
        membership: its place, if it is part of a sweep.
        storage: beyond this machine, if it has one.
    """

    config: RunConfig
    directory: Path
    membership: Membership | None = None
    storage: Storage | None = None

    @property
    def place(self) -> str:
        """Where its results lie, for people."""
        return self.storage.uri if self.storage else str(self.directory)

    @property
    def manifest_path(self) -> Path:
        """Which stages are done, from what, in how many seconds."""
        return self.directory / "manifest.json"

    def folder(self, stage: str) -> Path:
        """The folder of one stage's outputs."""
        path = self.directory / stage
        return path.resolve() if path.is_symlink() else path

    def on_this_node(self, **folders: str) -> Run:
        """The run as a task finds it that may be on another machine.

        Args:
            folders: what the task reads: stages, and what begins the names of the files it needs of each.
        """
        if self.storage is None:
            return self
        return Run(self.config, fetch_to_node(self.storage, folders), storage=self.storage)

    def unfinished(self, stage: str, name: str) -> str:
        """Where, in the storage, a task keeps its part of a stage that is not done."""
        return f"{UNFINISHED}/{self.owner_of(stage)}/{name}"

    def owner_of(self, stage: str) -> str | None:
        """The hash of what the stage's folder is made from; None if there is no such folder."""
        marker = self.folder(stage) / INPUTS_FILE
        return marker.read_text().strip() if marker.is_file() else None

    def fetch_all(self, stages: Iterable[str]) -> None:
        """Make the directory a copy of the storage."""
        if self.storage is None:
            return
        for name in (*stages, TRACKING):
            self.storage.fetch(self.directory / name, name)
        for name in (self.manifest_path.name, "summary.json", "report.html"):
            content = self.storage.read(name)
            (self.directory / name).unlink(missing_ok=True)
            if content is not None:
                with written_whole(self.directory / name) as temporary:
                    temporary.write_bytes(content)

    def send_folder(self, name: str) -> None:
        """Send a folder of the directory to the storage."""
        self.send_part(self.directory / name, name)

    def fetch_part(self, local: Path, name: str) -> None:
        """Make a local folder a copy of what is in the storage under a name."""
        if self.storage is not None:
            self.storage.fetch(local, name)

    def send_part(self, local: Path, name: str) -> None:
        """Send a local folder to the storage, under a name."""
        if self.storage is not None:
            self.storage.send(local, name)

    def send_files(self, *names: str) -> None:
        """Send files of the directory to the storage, in this order."""
        if self.storage is not None:
            for name in names:
                self.storage.write(name, (self.directory / name).read_bytes())

    def records(self) -> dict[str, Any]:
        """The manifest's record of every stage that is done.

        Raises:
            UserError: the manifest is damaged.
        """
        if not self.manifest_path.is_file():
            return {}
        manifest = read_json(self.manifest_path)
        stages = manifest.get("stages") if isinstance(manifest, dict) else None
        if not isinstance(stages, dict):
            raise UserError(f"file: {self.manifest_path} is not a run's manifest; delete it and run again")
        return stages


def run_at(config: RunConfig, out: str) -> Run:
    """The run at a directory, or at a storage's URI, of which runs/<the URI's path> is the local copy."""
    if not is_uri(out):
        return Run(config, Path(out).absolute())  # workers may stand elsewhere
    path = out.split("://", 1)[1].strip("/")
    return Run(config, Path("runs").absolute() / path, storage=Storage(out.rstrip("/")))
