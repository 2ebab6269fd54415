"""The traceback of an uncaught exception, which is left for `trainvitals run`.

`trainvitals run` makes a directory that only its user may read, and passes its path in
TRAINVITALS_FAILURES. A Python process below the command that ends by an uncaught exception writes
the file `PID.json` there: an object with the members `rank`, `attempt` (each a number, or null if no
launcher sets it), `time` (Unix seconds) and `text`, which is the end of the traceback.

This file is also loaded by its path, by interpreters that have no package `trainvitals`, so it
imports the standard library only, and that only when a process fails.
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

    The first call of a process counts. Nothing is written if the directory is missing or full, or
    after Ctrl-C: an import at this time can make Python forget that SIGINT is to end it.
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
    """Return the exception that ends a process; None if the process ends regularly.

    The exit that a handler of an exception requests, as in `torch.multiprocessing.spawn`, ends the
    process because of that exception.
    """
    if isinstance(error, SystemExit):
        return error.__context__ if error.code else None
    return error


def _cut(text: str) -> str:
    """Return the beginning and the end of a text that is too long."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:1000]}\n...\n{text[-_MOST_CHARACTERS + 1010 :]}"


def _read_number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else None
