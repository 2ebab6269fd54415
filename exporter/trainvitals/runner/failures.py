"""Reads the tracebacks of a command's processes, and finds the failure that ended the command."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainvitals.foreign_files import read_regular
from trainvitals.foreign_numbers import LATEST_TIME, is_within

_MOST_BYTES = 65536
_MOST_FILES = 64
# An earlier failure may have been expected by the command.
_NEAR_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Failure:
    """An uncaught exception of a process below the command.

    Attributes:
        pid: The PID of the process.
        time: The time when the exception ended the process, in Unix seconds.
        text: The exception's traceback.
        is_rank: Whether a launcher set a rank for the process; a rank's helper processes inherit
            the rank.
        attempt: The number of previous restarts, as counted by the launcher.
        is_of_thread: Whether the exception ended a thread other than the main thread, and not the
            process.
    """

    pid: int
    time: float
    text: str
    is_rank: bool = False
    attempt: int = 0
    is_of_thread: bool = False


class FailureDirectory:
    """A directory, readable only by this user, for the tracebacks of processes below a command.

    Attributes:
        path: The path of the directory; None if the directory cannot be created.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        with suppress(OSError):  # no directory for temporary files is writable
            self._directory = tempfile.TemporaryDirectory(
                prefix="trainvitals-", ignore_cleanup_errors=True
            )
            self.path = Path(self._directory.name)

    def read(self) -> list[Failure]:
        """Return the failures in the directory; damaged files are skipped."""
        if self.path is None:
            return []
        with suppress(OSError):
            paths = sorted(self.path.glob("*.json"))[:_MOST_FILES]
            found = [_read(path) for path in paths]
            return [failure for failure in found if failure is not None]
        return []

    def list_users_of_jax(self) -> set[int]:
        """Return the PIDs of the processes that imported JAX."""
        if self.path is None:
            return set()
        with suppress(OSError):
            return {int(path.stem) for path in self.path.glob("*.jax") if path.stem.isdecimal()}
        return set()

    def close(self) -> None:
        """Remove the directory."""
        if self._directory is not None:
            self._directory.cleanup()


def choose_failure(
    failures: Collection[Failure], ranks: Collection[int], ended: float
) -> Failure | None:
    """Return the failure that ended an unsuccessful command; None if that failure is unknown.

    If ranks failed, the result is the first failure of a rank in the last attempt, because this
    failure ended the other ranks and their launcher. Otherwise, the result is the last failure of a
    process. Failures more than 30 seconds before the command's end are ignored.

    Args:
        failures: The failures of processes below the command.
        ranks: The PIDs of the processes that reported.
        ended: The time when the command ended, in Unix seconds.
    """
    near = [
        failure
        for failure in failures
        if not failure.is_of_thread and ended - failure.time <= _NEAR_SECONDS
    ]
    reported = [failure for failure in near if failure.pid in ranks]
    launched = [failure for failure in near if failure.is_rank]
    for group in (reported, launched):
        if group:
            latest = max(failure.attempt for failure in group)
            of_latest = [failure for failure in group if failure.attempt == latest]
            return min(of_latest, key=lambda failure: failure.time)
    return max(near, key=lambda failure: failure.time, default=None)


def choose_thread_failure(failures: Iterable[Failure]) -> Failure | None:
    """Return the last failure that ended a thread but not its process; None if no thread failed."""
    of_threads = (failure for failure in failures if failure.is_of_thread)
    return max(of_threads, key=lambda failure: failure.time, default=None)


def _read(path: Path) -> Failure | None:
    try:
        members: Any = json.loads(read_regular(path, _MOST_BYTES, follows=False))
    except (OSError, ValueError, RecursionError):
        return None
    pid, _, kind = path.stem.partition(".")
    if not isinstance(members, dict) or not pid.isdecimal() or kind not in {"", "thread"}:
        return None
    time, text, attempt = (members.get(key) for key in ("time", "text", "attempt"))
    if not isinstance(time, float) or not is_within(time, LATEST_TIME) or not isinstance(text, str):
        return None
    return Failure(
        pid=int(pid),
        time=time,
        text=text,
        is_rank=isinstance(members.get("rank"), int),
        attempt=attempt if isinstance(attempt, int) else 0,
        is_of_thread=kind == "thread",
    )
