"""The two ways a run can fail: by the user's input (exit 2) or by the machine (exit 1)."""

from __future__ import annotations


class MaraError(Exception):
    """A failure with a one-line message that names the field, the value and the remedy."""

    exit_code = 1


class UserError(MaraError):
    """The user's input cannot be used: a bad value, a missing or damaged file. Exit code 2."""

    exit_code = 2


class MachineError(MaraError):
    """The machine cannot do it now: a full disk, a taken port, an unreachable cluster. Exit code 1."""

    exit_code = 1
