"""Requests to trace the next steps of a live run, written to the run file; see `runfile`.

Only the owner of a run and root can write to its run file.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import ConfigurationError, TrainvitalsError
from trainvitals.runfile import FILE_BYTES, TRACE_ANSWER_AT, TRACE_AT, TRACE_BYTES
from trainvitals.runfile.codec import decode_header
from trainvitals.runfile.traces import (
    TraceAnswer,
    TraceRequest,
    TraceStage,
    decode_trace_answer,
    decode_trace_request,
    encode_trace_request,
)
from trainvitals.sources.runs.directory import RunDirectory
from trainvitals.sources.runs.moment import find_phase
from trainvitals.sources.runs.owners import read_users
from trainvitals.sources.runs.seen_files import SeenFile
from trainvitals.units import format_duration

BUSY = frozenset({TraceStage.WAITING, TraceStage.TRACING, TraceStage.WRITING})
_POLL_SECONDS, _LOOK_SECONDS = 0.1, 1.0
_AFTER_END_SECONDS = 15.0
_NOBODY = bytes(8)
_UNSEEN = "has not seen the request yet"


@dataclass(frozen=True, slots=True)
class Target:
    """A rank whose steps can be traced.

    Attributes:
        path: The path of the rank's run file.
        run: The run's name.
        rank: The rank's number.
        phase: The rank's current phase, such as `train`; None if the phase is unknown.
    """

    path: Path
    run: str
    rank: int
    phase: str | None


def find_target(directory: Path, name: str, rank: int | None) -> Target:
    """Return the rank whose steps are to be traced.

    Args:
        directory: The run directory.
        name: The run's name, or a prefix of the name.
        rank: The number of the rank; None means the lowest rank that is alive on this machine.

    Raises:
        ConfigurationError: No run matches, the prefix is ambiguous, the run has ended, or the rank
            is not alive on this machine.
        SourceError: The run directory cannot be read.
    """
    files = _read(directory)
    runs = {_name(file) for file in files}
    chosen = {name} & runs or {each for each in runs if each.startswith(name)}
    if len(chosen) > 1:
        raise ConfigurationError(f"{name!r} may be {', '.join(sorted(chosen)[:8])}; write more")
    if not chosen:
        known = f"there is {', '.join(sorted(runs)[:8])}" if runs else "no run has a file there"
        raise ConfigurationError(
            f"no run {name!r} in {directory}; {known}; give the --run-dir of the run, and for one in "
            "a container ask inside it"
        )
    (run,) = chosen
    ranks = {_rank(file): file for file in files if _name(file) == run and file.liveness.is_alive}
    if not ranks:
        raise ConfigurationError(f"run {run} is over; see `trainvitals postmortem {run}`")
    if rank is not None and rank not in ranks:
        listed = ", ".join(map(str, sorted(ranks)))
        raise ConfigurationError(f"run {run} has no rank {rank} alive here; there is {listed}")
    file = ranks[min(ranks) if rank is None else rank]
    phase = find_phase(file.record)
    return Target(file.path, run, _rank(file), None if phase is None else phase.name.lower())


@contextmanager
def ask(target: Target, request: TraceRequest) -> Iterator[Callable[[], TraceAnswer]]:
    """Request a trace, yield a function that reads the answer, and withdraw the request on exit.

    Raises:
        TrainvitalsError: The run file cannot be opened or belongs to another user, the run's client
            does not support trace requests, or another request is active.
    """
    descriptor = _open(target)
    try:
        before = _read_answer(descriptor)
        if before.stage is TraceStage.UNAVAILABLE:
            raise TrainvitalsError(
                f"run {target.run} takes no requests: its trainvitals is older than this one"
            )
        waiting = decode_trace_request(os.pread(descriptor, TRACE_ANSWER_AT, TRACE_AT), 0)
        if before.stage in BUSY or (waiting is not None and waiting.number != before.number):
            raise TrainvitalsError(
                f"another request is active for run {target.run}, rank {target.rank}, which "
                f"{describe(before)}; ask again when that is over"
            )
        data = encode_trace_request(request)
        os.pwrite(descriptor, data[8:], TRACE_AT + 8)
        # Writing the number last makes the request valid.
        os.pwrite(descriptor, data[:8], TRACE_AT)
        try:
            yield lambda: _read_answer(descriptor)
        finally:
            if os.pread(descriptor, 8, TRACE_AT) == data[:8]:
                os.pwrite(descriptor, _NOBODY, TRACE_AT)
    finally:
        os.close(descriptor)


def follow(
    target: Target,
    request: TraceRequest,
    read: Callable[[], TraceAnswer],
    *,
    timeout_seconds: float,
    report: Callable[[str], object] = lambda _: None,
) -> TraceAnswer:
    """Wait until a requested trace has been written or has failed, and return the answer.

    Args:
        target: The rank that is traced.
        request: The trace request.
        read: A function that returns the run's current answer to the request.
        timeout_seconds: The maximum time without progress, in seconds.
        report: A function that is called with a line about the progress whenever it changes.

    Raises:
        TrainvitalsError: The run ended before the trace was written, or there was no progress
            before the timeout.
    """
    reported = ""
    changed = looked = time.monotonic()
    ended: float | None = None
    while True:
        answer = read()
        is_ours = answer.number == request.number
        if is_ours and answer.stage not in BUSY:
            return answer
        now = time.monotonic()
        words = describe(answer) if is_ours else _UNSEEN
        # Most answers arrive within this time, so a message would immediately be outdated.
        is_early = words == _UNSEEN and now - changed < _LOOK_SECONDS
        if words != reported and not is_early:
            reported, changed = words, changed if words == _UNSEEN else now
            report(f"rank {target.rank} of run {target.run} {words}")
        if now - looked > _LOOK_SECONDS and ended is None:
            looked = now
            ended = None if _is_alive(target) else now
        if ended is not None and (
            now - ended > _AFTER_END_SECONDS or answer.stage is not TraceStage.WRITING
        ):
            answer = read()  # The run may have written the trace just before its end.
            if answer.number == request.number and answer.stage not in BUSY:
                return answer
            raise TrainvitalsError(f"run {target.run} ended before the trace was written")
        if now - changed > timeout_seconds:
            phase = f", and was in phase {target.phase} before" if target.phase else ""
            raise TrainvitalsError(
                f"run {target.run} {words} after {format_duration(timeout_seconds)}{phase}: a request is seen "
                "with the end of a step; wait longer with --timeout"
            )
        time.sleep(_POLL_SECONDS)


def describe(answer: TraceAnswer) -> str:
    """Return a trace's progress as the predicate of a sentence: `is tracing, 3 steps so far`."""
    steps = f"{answer.steps} step" + ("" if answer.steps == 1 else "s")
    return {
        TraceStage.WAITING: "waits for the end of a step",
        TraceStage.TRACING: f"is tracing, {steps} so far",
        TraceStage.WRITING: f"is writing a trace of {steps}",
    }.get(answer.stage, _UNSEEN)


def _read(directory: Path) -> tuple[SeenFile, ...]:
    reader = RunDirectory(directory, users=read_users())
    try:
        return reader.read(time.time()).files
    finally:
        reader.close()


def _name(file: SeenFile) -> str:
    return file.record.identity.run if file.record.identity else ""


def _rank(file: SeenFile) -> int:
    return file.record.identity.rank if file.record.identity else 0


def _is_alive(target: Target) -> bool:
    return any(
        file.path == target.path and file.liveness.is_alive for file in _read(target.path.parent)
    )


def _open(target: Target) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(target.path, flags)
    except PermissionError as error:
        raise TrainvitalsError(
            f"run {target.run} is another user's: ask as that user, or as root"
        ) from error
    except OSError as error:
        raise TrainvitalsError(f"cannot open {target.path}: {error.strerror}") from error
    try:
        _check(descriptor, target)
    except TrainvitalsError:
        os.close(descriptor)
        raise
    return descriptor


def _check(descriptor: int, target: Target) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size != FILE_BYTES:
        raise TrainvitalsError(f"{target.path} is no longer a run file")
    decode_header(os.pread(descriptor, FILE_BYTES, 0))


def _read_answer(descriptor: int) -> TraceAnswer:
    return decode_trace_answer(os.pread(descriptor, TRACE_BYTES, TRACE_AT), TRACE_ANSWER_AT)
