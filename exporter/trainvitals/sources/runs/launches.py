"""Launches, which are invocations of `trainvitals run`, and the notes that record launches.

**The note** is the file `run.PID.RANDOM.launch` in the run directory, where PID is the process ID
of `trainvitals run`. The note is a JSON object in UTF-8 of at most 65536 bytes, with mode 0600,
because the last error and the path of the log may be private. The note is written under a temporary
name that begins with a dot, and then renamed. The note is created immediately if the user named the
run, and otherwise as soon as a process below the command reports a run. When the command ends, the
note is updated. The exporter and later launches remove notes that were last written to over a day
ago.

============== =================================================================================
member         value
============== =================================================================================
`format`       the number 1; a reader ignores a note with any other value
`name`         the run name that the user gave, or null
`runs`         the names of the runs that processes below the command reported; at most 64 strings
`started`      when the command was started, in Unix seconds; less than 4e9
`ended`        when the command ended, in Unix seconds, or null; if `trainvitals run` was killed,
               the value remains null, and the end of the command is unknown
`exit_code`    0 to 255, or null if the command has not ended or a signal killed it
`signal`       1 to 64, or null if the command has not ended or no signal killed it
`error`        the traceback of the exception that ended the command, as Python prints it, or null;
               at most 16384 characters
`thread_error` the traceback of the last exception that ended a thread, other than the main thread,
               of a process below the command, or null; at most 16384 characters
`pids`         after the command has ended: the process IDs of the command and of the descendants
               that were found, in the PID namespace of `trainvitals run`; at most 256 numbers
`log`          the absolute path of the file with the output of the command, or null
`log_start`    the size of this file when the command was started, in bytes
============== =================================================================================

Because any user may write to a run directory, a reader uses the note only for runs of the note's
owner, and reads the log only if the log has the same owner.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainvitals.foreign_files import open_regular
from trainvitals.foreign_numbers import LATEST_TIME, is_within
from trainvitals.foreign_text import clean_label
from trainvitals.sources.runs.owners import Users

SUFFIX = ".launch"
MOST_ERROR_CHARACTERS = 16384
MOST_RUNS = 64
MOST_PIDS = 256

_FORMAT = 1
_MOST_BYTES = 65536
_MOST_NOTES = 256
_MOST_NAMES = 4096
_MOST_NAME = 128
_MOST_PATH = 4096
_MOST_LOG_BYTES = 4 << 20
_LARGEST_FILE = 1 << 62
_HIGHEST_CODE = 255
_HIGHEST_SIGNAL = 64
_HIGHEST_PID = 1 << 22
_SLACK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Launch:
    """One invocation of `trainvitals run`.

    Attributes:
        name: The run name that the user gave; None if the user gave no name.
        runs: The names of the runs that processes below the command reported.
        started: The time when the command was started, in Unix seconds.
        ended: The time when the command ended, in Unix seconds; None if the command is running or
            its end is unknown.
        exit_code: The command's exit code; None if the exit code is unknown or a signal killed the
            command.
        signal: The number of the signal that killed the command; None if the signal is unknown or
            no signal killed the command.
        error: The traceback of the exception that ended the command; None if no such exception is
            known.
        log: The path of the file with the command's output; None if the output is not logged.
        log_start: The size of the log when the command was started, in bytes.
        owner: The ID of the user who owns the note.
        thread_error: The traceback of the last exception that ended a thread, other than the main
            thread, of a process below the command; None if no such exception is known.
        pids: The process IDs of the command and of the processes below the command; empty until the
            command ended.
    """

    name: str | None
    runs: Sequence[str]
    started: float
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    log: str | None = None
    log_start: int = 0
    owner: int = 0
    thread_error: str | None = None
    pids: Sequence[int] = ()

    def has_run(self, run: str) -> bool:
        """Return whether a process reported a run, or the user named the run and no process did."""
        return run in self.runs or (not self.runs and run == self.name)


def encode_launch(launch: Launch) -> bytes:
    """Return the content of a launch note."""
    members = {"format": _FORMAT} | asdict(launch)
    del members["owner"]
    data = json.dumps(members).encode()
    if len(data) <= _MOST_BYTES:
        return data
    shorter = {"error": None, "thread_error": None, "runs": launch.runs[:1]}
    return json.dumps(members | shorter).encode()


def read_launches(directory: Path, users: Users = Users()) -> tuple[Launch, ...]:  # noqa: B008 - immutable
    """Return the launches whose notes are in a run directory, the latest first.

    Args:
        directory: The run directory.
        users: The users whose notes are read.
    """
    found = []
    with suppress(OSError), os.scandir(directory) as entries:
        names = [entry.name for _, entry in zip(range(_MOST_NAMES), entries, strict=False)]
        notes = [name for name in names if name.endswith(SUFFIX) and name[0] != "."]
        found = [_read(directory / name, users) for name in notes[:_MOST_NOTES]]
    known = [launch for launch in found if launch is not None]
    return tuple(sorted(known, key=lambda launch: launch.started, reverse=True))


def find_launch(
    launches: Iterable[Launch], run: str, owner: int, created_time: float
) -> Launch | None:
    """Return the user's last launch of a run that started before the run file was created.

    Args:
        launches: The launches, the latest first.
        run: The name of the run in the run file.
        owner: The ID of the user who owns the run file.
        created_time: The time when the run file was created, in Unix seconds.
    """
    for launch in launches:
        is_before = launch.started <= created_time + _SLACK_SECONDS
        if is_before and launch.owner == owner and launch.has_run(run):
            return launch
    return None


def read_output(launch: Launch) -> str | None:
    """Return the end of a launch's log; None if the log does not exist or cannot be read."""
    if launch.log is None:
        return None
    try:
        descriptor = open_regular(launch.log)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != launch.owner:
            return None
        start = max(launch.log_start, status.st_size - _MOST_LOG_BYTES)
        data = os.pread(descriptor, _MOST_LOG_BYTES, start)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    # Of a line that was overwritten, such as a progress bar, only the last version is kept.
    lines = data.decode(errors="replace").replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _read(path: Path, users: Users) -> Launch | None:
    try:
        descriptor = open_regular(str(path), follows=False)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_uid not in users or not 0 < status.st_size <= _MOST_BYTES:
            return None
        launch = _decode(os.pread(descriptor, _MOST_BYTES, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if launch is None else replace(launch, owner=status.st_uid)


def _decode(data: bytes) -> Launch | None:
    try:
        members = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or members.get("format") != _FORMAT:
        return None
    started, ended = (_read_number(members.get(key)) for key in ("started", "ended"))
    if started is None:
        return None
    runs, pids = members.get("runs"), members.get("pids")
    name, log = (_read_text(members.get(key), _MOST_PATH) for key in ("name", "log"))
    return Launch(
        name=None if name is None else clean_label(name[:_MOST_NAME]),
        runs=_read_runs(runs) if isinstance(runs, list) else (),
        started=started,
        ended=ended,
        exit_code=_read_count(members.get("exit_code"), _HIGHEST_CODE),
        signal=_read_count(members.get("signal"), _HIGHEST_SIGNAL) or None,
        error=_read_text(members.get("error"), MOST_ERROR_CHARACTERS),
        log=log if log is not None and log.startswith("/") else None,
        log_start=_read_count(members.get("log_start"), _LARGEST_FILE) or 0,
        thread_error=_read_text(members.get("thread_error"), MOST_ERROR_CHARACTERS),
        pids=_read_pids(pids) if isinstance(pids, list) else (),
    )


def _read_runs(runs: Sequence[Any]) -> tuple[str, ...]:
    return tuple(clean_label(run[:_MOST_NAME]) for run in runs[:MOST_RUNS] if isinstance(run, str))


def _read_pids(pids: Sequence[Any]) -> tuple[int, ...]:
    found = (_read_count(pid, _HIGHEST_PID) for pid in pids[:MOST_PIDS])
    return tuple(pid for pid in found if pid)


def _read_number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and is_within(value, LATEST_TIME) else None  # type: ignore[arg-type]


def _read_count(value: object, most: int) -> int | None:
    return value if type(value) is int and 0 <= value <= most else None


def _read_text(value: object, most: int) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= most else None
