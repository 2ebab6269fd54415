"""Writes the tracebacks of uncaught exceptions to files that `trainvitals run` reads.

`trainvitals run` creates a directory that only its user can read, and passes the path of this
directory in TRAINVITALS_FAILURES. If an uncaught exception ends a Python process that the command
started directly or indirectly, the process writes the file `PID.json` to this directory. The file
contains a JSON object with the members `rank` and `attempt` (numbers, or null if the launcher does
not set them), `time` (in Unix seconds) and `text` (the traceback; if it is too long, its middle is
omitted). An exception that ends a thread other than the main thread does not end the process. The
last such exception of a process is written to the file `PID.thread.json`, which has the same
members. A process that imports JAX writes the empty file `PID.jax`, because the steps of JAX cannot
be observed.

This module is also loaded by its path in interpreters that cannot import the package `trainvitals`.
It therefore imports only the standard library, and does so only when a process fails.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

VARIABLE = "TRAINVITALS_FAILURES"
_MOST_FRAMES = 30
_MOST_CHARACTERS = 8000
_MOST_FILES = 64
# Other files must leave room for the files with the tracebacks of processes.
_MOST_OTHER_FILES = 32
_THREAD_SECONDS = 1.0
_MOST_DIGITS = 10


def leave_traceback(error: BaseException) -> None:
    """Write the traceback of an uncaught exception, if `trainvitals run` started this process.

    Only the first call in a process has an effect. Nothing is written if the directory is missing
    or full. Nothing is written after Ctrl-C either, because an import at that time can prevent
    SIGINT from ending Python.
    """
    directory = os.environ.get(VARIABLE)
    if not directory or not isinstance(error, Exception):
        return
    try:
        if len(os.listdir(directory)) >= _MOST_FILES:  # noqa: PTH208 - without an import
            return
        _write(f"{directory}/{os.getpid()}.json", os.O_EXCL, _describe(error))
    except OSError:
        pass


def note_jax() -> None:
    """Record that this process has imported JAX, if `trainvitals run` started this process."""
    directory = os.environ.get(VARIABLE)
    if directory and len(os.listdir(directory)) < _MOST_OTHER_FILES:  # noqa: PTH208
        _write(f"{directory}/{os.getpid()}.jax", os.O_TRUNC, b"")


def watch_threads(threading: Any) -> None:  # noqa: ANN401 - the module `threading`
    """Write the traceback of an exception that ends a thread, at most once a second.

    `threading.excepthook` is not replaced and is called as before. Each thread creates a function
    that calls this hook, and only that function is wrapped. Python versions that do not create such
    a function are not changed.
    """
    make = getattr(threading, "_make_invoke_excepthook", None)
    if make is not None:
        threading._make_invoke_excepthook = _wrap_maker(make)  # noqa: SLF001 - no public one


def _wrap_maker(make: Callable[[], Callable[[Any], object]]) -> Callable[[], Callable[[Any], None]]:
    def make_invoke_excepthook() -> Callable[[Any], None]:
        invoke = make()

        def invoke_excepthook(thread: Any) -> None:  # noqa: ANN401 - a thread
            try:  # noqa: SIM105 - see above
                _leave_thread_traceback()
            except (OSError, ValueError, RecursionError, MemoryError):
                pass  # the program's hook is called in any case
            invoke(thread)

        return invoke_excepthook

    return make_invoke_excepthook


def _leave_thread_traceback() -> None:
    """Write the traceback of the exception that is being handled."""
    import sys  # noqa: PLC0415 - see above
    import time  # noqa: PLC0415

    error, directory = sys.exc_info()[1], os.environ.get(VARIABLE)
    if not directory or not isinstance(error, Exception):
        return
    path = f"{directory}/{os.getpid()}.thread.json"
    try:
        if time.time() - os.stat(path).st_mtime < _THREAD_SECONDS:  # noqa: PTH116 - no import
            return
    except OSError:
        if len(os.listdir(directory)) >= _MOST_OTHER_FILES:  # noqa: PTH208
            return
    _write(f"{path}.new", os.O_TRUNC, _describe(error))
    os.replace(f"{path}.new", path)  # noqa: PTH105


def _describe(error: BaseException) -> bytes:
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
    return json.dumps(members).encode()


def _write(path: str, flags: int, data: bytes) -> None:
    flags |= os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def find_error(error: BaseException | None) -> BaseException | None:
    """Return the exception that ends a process; None if the process ends normally.

    If an exception handler calls `sys.exit`, as in `torch.multiprocessing.spawn`, the exception
    that was being handled is returned.
    """
    if isinstance(error, SystemExit):
        return error.__context__ if error.code else None
    return error


def _cut(text: str) -> str:
    """Return the text, or only its beginning and its end if the text is too long."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:1000]}\n...\n{text[-_MOST_CHARACTERS + 1010 :]}"


def _read_number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else None
