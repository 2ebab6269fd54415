"""Describe signals, and find the signals in exit codes."""

from __future__ import annotations

import signal

_FROM_SHELL, _FROM_PBS, _MOST_SIGNALS = 128, 256, 64
LOWEST_CODE, HIGHEST_CODE = -_MOST_SIGNALS, _FROM_PBS + _MOST_SIGNALS


def read_signal(code: int) -> int | None:
    """Return the number of the signal in an exit code; None if the exit code contains no signal.

    An exit code that contains a signal is 128 plus the signal's number, 256 plus the number (in
    PBS), or the negative number.
    """
    number = -code if code < 0 else code - (_FROM_PBS if code > _FROM_PBS else _FROM_SHELL)
    return number if 0 < number <= _MOST_SIGNALS else None


def describe_code(code: int) -> str:
    """Return a description of the signal in an exit code, such as `137 is SIGKILL (128 + 9)`.

    The description is empty if the exit code contains no signal.
    """
    number = read_signal(code)
    if number is None:
        return ""
    base = f"{code - number} + " if code > 0 else "minus "
    return f"{code} is {name_signal(number)} ({base}{number})"


def name_signal(number: int) -> str:
    """Return a signal's name, such as `SIGKILL`, or `signal 40` for a signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_signal(number: int) -> str:
    """Return a signal's number and name, such as `signal 9 (SIGKILL)`.

    For a signal without a name, only the number is returned, such as `signal 40`.
    """
    name = name_signal(number)
    return name if name == f"signal {number}" else f"signal {number} ({name})"
