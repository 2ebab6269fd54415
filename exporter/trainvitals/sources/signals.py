"""The names of signals."""

from __future__ import annotations

import signal


def name_signal(number: int) -> str:
    """Return the name of a signal: `SIGKILL`; `signal 40` where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_signal(number: int) -> str:
    """Return a signal's number and name: `signal 9 (SIGKILL)`; `signal 40` where it has none."""
    name = name_signal(number)
    return name if name == f"signal {number}" else f"signal {number} ({name})"
