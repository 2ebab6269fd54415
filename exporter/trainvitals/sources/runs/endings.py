"""Determines how a rank ended, and records the ending in a note beside the rank's run file.

The exporter writes the note. `trainvitals run` writes or replaces the note if it knows how a rank
below the command exited.

**The note** for the run file `NAME` is the file `NAME.end` in the same directory: a JSON object in
UTF-8 of at most 4096 bytes, with mode 0644. The note is written under a temporary name that begins
with a dot, and then renamed.

=========== ====================================================================================
member      value
=========== ====================================================================================
`format`    the number 1; a reader ignores a note with any other value
`reason`    the reason for the ending: one of `REASONS`
`exit_code` 0 to 255, or null if the exit code is unknown or a signal killed the process
`signal`    1 to 64, or null if no signal killed the process
`exception` the class of the exception that ended the run, or null if no exception is known
`time`      when the rank ended, as precisely as is known, in Unix seconds; less than 4e9
`evidence`  one sentence with the evidence for the reason
`machine`   an object of non-negative numbers: the machine state at that time, such as
            `memory_available_bytes`; at most 64 members with names of at most 64 characters
=========== ====================================================================================

Because any user may write to a run directory, a reader accepts a note only if the note's author is
the reader's user, root or the run file's owner.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeGuard

from trainvitals.foreign_files import open_regular
from trainvitals.foreign_numbers import LATEST_TIME, MOST_AMOUNT, is_within
from trainvitals.foreign_text import clean_label
from trainvitals.runfile import State
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.processes import Exit
from trainvitals.sources.signals import describe_signal

Reason = Literal["finished", "exception", "signal", "oom", "unknown"]
REASONS: tuple[Reason, ...] = ("finished", "exception", "signal", "oom", "unknown")
SUFFIX = ".end"

_FORMAT = 1
_MOST_BYTES = 4096
_MOST_CHARACTERS = 512
_MOST_NUMBERS = 64
_MOST_NAME_CHARACTERS = 64
_HIGHEST_CODE = 255
_HIGHEST_SIGNAL = 64

_log = logging.getLogger("trainvitals")


@dataclass(frozen=True, slots=True)
class Ending:
    """The way in which a rank ended.

    Attributes:
        reason: The reason for the ending: `finished` if the record says so or the exit code is 0;
            `exception` if the record says so or the exit code is not 0; `oom` if the kernel counted
            an OOM kill; `signal` if a signal killed the process; otherwise `unknown`.
        exit_code: The exit code, 0 to 255; None if the exit code is unknown or a signal killed the
            process.
        signal: The signal that killed the process; None if no signal killed the process or the
            signal is unknown.
        exception: The class of the exception that ended the rank; None if no exception ended the
            rank or the class is unknown.
        time: The time when the rank ended, as precisely as is known, in Unix seconds.
        evidence: One sentence with the evidence for the reason.
        machine: The machine state when the rank ended, as numbers in base units, by name; may be
            empty.
    """

    reason: Reason
    exit_code: int | None
    signal: int | None
    exception: str | None
    time: float
    evidence: str
    machine: Mapping[str, float] = field(default_factory=dict)


def determine_ending(
    record_state: State | None, last_words: str, liveness: Liveness, now: float
) -> Ending:
    """Return how a rank ended, according to its record or, failing that, the kernel.

    Args:
        record_state: The state that the trainer recorded last; None if the state is unknown.
        last_words: The class of the exception in the record; an empty string if the record contains
            no exception.
        liveness: The rank's liveness, including the kernel's report of the exit.
        now: The time when the rank ended, as precisely as is known, in Unix seconds.
    """
    exit_ = liveness.exit
    code = None if exit_ is None else exit_.code
    number = None if exit_ is None else exit_.signal
    exception = _clean(last_words) or None
    reason, evidence = _weigh(record_state, exception, liveness)
    return Ending(reason, code, number, exception if reason == "exception" else None, now, evidence)


def write_ending(run_file: Path, ending: Ending) -> None:
    """Write the note beside a run file, replacing an existing note.

    If the note cannot be written, a warning is logged.
    """
    try:
        # The directory's owner may replace the directory with a link to a directory that only this
        # user may write to.
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(run_file.parent, flags)
        try:
            write_note(folder, run_file.name + SUFFIX, _encode(ending))
        finally:
            os.close(folder)
    except OSError as error:
        _log.warning(
            "cannot note how %s ended: %s; let the exporter's user write in its directory",
            run_file,
            error.strerror,
        )


def read_ending(run_file: Path) -> Ending | None:
    """Read the note beside a run file; the run file need not exist any more.

    Returns:
        The ending in the note; None if the note does not exist or is not accepted.
    """
    path = f"{run_file}{SUFFIX}"
    try:
        descriptor = open_regular(path, follows=False)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not 0 < status.st_size <= _MOST_BYTES:
            return None
        if status.st_uid not in {0, os.geteuid(), _owner_of(run_file)}:
            return None
        return _decode(os.pread(descriptor, _MOST_BYTES, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _weigh(
    record_state: State | None, exception: str | None, liveness: Liveness
) -> tuple[Reason, str]:
    if record_state is State.FINISHED:
        return "finished", "The run said that it finished."
    if record_state is State.ENDED and liveness.exit in {None, Exit(code=0, signal=None)}:
        return "finished", "Its interpreter ended without an exception."
    if record_state is State.FAILED:
        what = "it failed" if exception is None else f"{exception} ended it"
        return "exception", f"The run said that {what}."
    if liveness.oom_killed:
        how = "how this one died is not known"
        if liveness.exit is not None:
            how = "signal 9 (SIGKILL) hit this one"
        return "oom", f"The kernel reported an OOM kill in its control group, and {how}."
    return _weigh_exit(liveness)


def describe_ending(ending: Ending) -> str:
    """Return a short description of an ending, such as `was killed by signal 9 (SIGKILL)`."""
    match ending.reason:
        case "finished":
            return "finished"
        case "exception":
            if ending.exception is None and ending.exit_code is None:
                return "failed"
            return f"failed with {ending.exception or f'exit code {ending.exit_code}'}"
        case "oom":
            return "was killed because memory ran out"
        case "signal":
            return f"was killed by {describe_signal(ending.signal or 0)}"
        case _:
            return "died for an unknown reason"


def _weigh_exit(liveness: Liveness) -> tuple[Reason, str]:
    match liveness.exit:
        case Exit(signal=int(number)):
            return (
                "signal",
                f"The kernel says that {describe_signal(number)} killed its process.",
            )
        case Exit(code=int(code)):
            reason: Reason = "exception" if code else "finished"
            return reason, f"Its process ended with exit code {code}; the run gave no reason."
    if liveness.evidence == "age":
        return "unknown", "It stopped reporting, and nothing else is known about it here."
    return "unknown", "Its process is gone; neither the run nor the kernel says how it ended."


def _clean(text: str) -> str:
    return clean_label(text[:_MOST_CHARACTERS], replacement="?")


def _encode(ending: Ending) -> bytes:
    machine = {
        name: value
        for name, value in list(ending.machine.items())[:_MOST_NUMBERS]
        if len(name) <= _MOST_NAME_CHARACTERS and math.isfinite(value)
    }
    members = {
        "format": _FORMAT,
        "reason": ending.reason,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "exception": ending.exception,
        "time": ending.time,
        "evidence": ending.evidence,
    }
    data = json.dumps(members | {"machine": machine}).encode()
    if len(data) <= _MOST_BYTES:
        return data
    return json.dumps(members | {"machine": {}}, ensure_ascii=True).encode()


def write_note(folder: int, name: str, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file to an open run directory; an existing file is replaced.

    The file is written as `.NAME.RANDOM` and then renamed, so that readers never see an incomplete
    file.

    Args:
        folder: The descriptor of the open run directory.
        name: The name of the file.
        data: The content of the file.
        mode: The mode of the file, regardless of the umask.

    Raises:
        OSError: The file cannot be written.
    """
    hidden = f".{name}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(hidden, flags, mode, dir_fd=folder)
    try:
        try:
            os.fchmod(descriptor, mode)
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
        os.rename(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(hidden, dir_fd=folder)
        raise


def _owner_of(path: Path) -> int:
    try:
        return path.lstat().st_uid
    except OSError:
        return 0


def _decode(data: bytes) -> Ending | None:
    try:
        members = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or members.get("format") != _FORMAT:
        return None
    reason, time, evidence = (members.get(key) for key in ("reason", "time", "evidence"))
    code, number, exception = (members.get(key) for key in ("exit_code", "signal", "exception"))
    machine = members.get("machine")
    if (
        reason not in REASONS
        or not _is_number(time)
        or time > LATEST_TIME
        or not isinstance(evidence, str)
        or not _is_within(code, 0, _HIGHEST_CODE)
        or not _is_within(number, 1, _HIGHEST_SIGNAL)
        or not isinstance(exception, str | None)
        or not isinstance(machine, dict)
    ):
        return None
    return Ending(
        reason=REASONS[REASONS.index(reason)],
        exit_code=code,
        signal=number,
        exception=None if exception is None else _clean(exception),
        time=float(time),
        evidence=_clean(evidence),
        machine={
            _clean(name): float(value)
            for name, value in list(machine.items())[:_MOST_NUMBERS]
            if len(name) <= _MOST_NAME_CHARACTERS and _is_number(value)
        },
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return is_within(value, MOST_AMOUNT)


def _is_within(value: object, lowest: int, highest: int) -> bool:
    return value is None or (type(value) is int and lowest <= value <= highest)
