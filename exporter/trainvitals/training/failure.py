"""Writes the traceback of an uncaught exception to a file that `trainvitals run` reads.

`trainvitals run` creates a directory that only its user can read, and passes the path in
TRAINVITALS_FAILURES. If an uncaught exception ends a Python process below the command, the process
writes the file `PID.json` to this directory. The file contains a JSON object with the members
`rank` and `attempt` (numbers, or null if the launcher does not set them), `time` (in Unix seconds)
and `text` (the traceback, whose middle is cut out if it is too long).

This file is also loaded by its path, in interpreters that do not have the package `trainvitals`, so
it imports only the standard library, and only when a process fails.
"""

from __future__ import annotations

import os

VARIABLE = "TRAINVITALS_FAILURES"
_MOST_FRAMES = 30
_MOST_CHARACTERS = 8000
_MOST_FILES = 64
_MOST_DIGITS = 10


def leave_traceback(error: BaseException) -> None:
    """Write the traceback of an uncaught exception, if this process runs below `trainvitals run`.

    Only the first call in a process has an effect. Nothing is written if the directory is missing
    or full, or after Ctrl-C, because an import at this time can prevent Python from ending by
    SIGINT.
    """
    directory = os.environ.get(VARIABLE)
    if not directory or not isinstance(error, Exception):
        return
    import json  # noqa: PLC0415 - see above
    import time  # noqa: PLC0415
    import traceback  # noqa: PLC0415

    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-_MOST_FRAMES)
    members = {
        "rank": _read_number("RANK"),
        "attempt": _read_number("TORCHELASTIC_RESTART_COUNT"),
        "time": time.time(),
        "text": _cut("".join(lines)),
    }
    try:
        if len(os.listdir(directory)) >= _MOST_FILES:  # noqa: PTH208 - without an import
            return
        path = f"{directory}/{os.getpid()}.json"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return
    try:
        os.write(descriptor, json.dumps(members).encode())
    except OSError:
        pass
    finally:
        os.close(descriptor)


def find_error(error: BaseException | None) -> BaseException | None:
    """Return the exception that ends a process; None if the process ends normally.

    If an exception handler requests an exit, as in `torch.multiprocessing.spawn`, the handled
    exception is returned.
    """
    if isinstance(error, SystemExit):
        return error.__context__ if error.code else None
    return error


def _cut(text: str) -> str:
    """Return a text; if it is too long, return only the beginning and the end."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:1000]}\n...\n{text[-_MOST_CHARACTERS + 1010 :]}"


def _read_number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else None
