"""mara dashboard and mara wandb-sync: looking at what was logged, and uploading it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from mara_ray import progress
from mara_ray.config import TrackingConfig
from mara_ray.errors import MachineError, UserError

dashboards_app = typer.Typer()
Folder = Annotated[Path, typer.Argument(help="The directory of a run or a sweep, or one that holds some.")]


@dashboards_app.command()
def dashboard(
    directory: Folder = Path("runs"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of TensorBoard.")] = 6006,
) -> None:
    """Show the logs of runs and sweeps in TensorBoard, until interrupted."""
    if next(directory.rglob("events.out.tfevents.*"), None) is None:
        raise UserError(f"dashboard: {directory} holds no logs; name the directory of a run or a sweep")
    for folder in sorted(path.parent for path in _offline_runs(directory, unique_folders=True)):
        progress.say(f"W&B runs in a terminal: wandb leet {folder}")
    progress.say(f"TensorBoard: http://localhost:{port} (Ctrl-C ends it)")
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--port", str(port)]
    try:
        code = subprocess.run(command).returncode
    except KeyboardInterrupt:
        return
    if code:
        raise MachineError(f"dashboard: TensorBoard ended with code {code}; is --port {port} free?")


@dashboards_app.command("wandb-sync")
def wandb_sync(
    directory: Folder = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be uploaded.")] = False,
) -> None:
    """Upload the offline W&B runs of a directory, those that are uploaded already left out."""
    runs = [folder for folder in _offline_runs(directory) if not any(folder.glob("*.wandb.synced"))]
    if dry_run or not runs:
        for folder in runs:
            print(folder)
        progress.say(f"wandb-sync: {len(runs)} offline runs in {directory} to upload")
        return
    from mara_ray.experiments.tracking import wandb_mode

    if wandb_mode(TrackingConfig()) != "online":
        raise UserError("wandb-sync: there is no API key; set WANDB_API_KEY, or run `wandb login` once")
    code = subprocess.run([sys.executable, "-m", "wandb", "sync", *map(str, runs)]).returncode
    if code:
        raise MachineError(f"wandb-sync: wandb ended with code {code}; run again to go on")


def _offline_runs(directory: Path, unique_folders: bool = False) -> list[Path]:
    """Folders of offline runs, in order; one of each W&B folder if asked."""
    found = sorted(path for path in directory.rglob("offline-run-*") if path.is_dir())
    return list({path.parent: path for path in found}.values()) if unique_folders else found
