"""What something was made with: the command and the versions, for manifests and reports."""

from __future__ import annotations

import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

from mara_ray import __version__

PACKAGES = ("ray", "torch", "numpy", "pandas", "pyarrow", "scipy", "wandb", "gymnasium")


def versions() -> dict[str, str]:
    """Versions of this package, of Python, and of what results depend on."""
    own = {"mara_ray": __version__, "python": platform.python_version()}
    return own | {name: metadata.version(name) for name in PACKAGES}


def command() -> str:
    """The command line of this process, as it was typed."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
