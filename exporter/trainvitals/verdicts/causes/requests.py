"""Requests to end a container, by Ctrl-C or the engine, derived from the engine's events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.containers.evidence import EngineEvent
from trainvitals.units import format_duration
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.schedulers import is_at_limit
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

Kind = Literal["kill", "timeout", "stop", "interrupt"]

_SIGINT, _SIGQUIT, _SIGKILL, _SIGTERM = 2, 3, 9, 15
# Another signal, such as SIGUSR1 for a checkpoint, requests an end only if it is the image's
# STOPSIGNAL; the engine then reports `stop` as well.
_STOP_SIGNALS = frozenset({None, _SIGINT, _SIGQUIT, _SIGTERM})
# A SIGTERM that was sent earlier did not cause the end, because no grace period is this long.
_LONGEST_GRACE_SECONDS = 3600.0
# Docker may report the event `stop` after the event `die`.
_LATE_SECONDS = 2.0
_LEAST_GRACE_SECONDS = 60
# SIGKILL cannot be ignored, but a process in an uninterruptible system call (a driver, a dead file
# system) ends only when the call returns.
_PROMPT_SECONDS = 10.0
_LAST_LINES = 60
_OF_OPENBLAS = contains("OpenBLAS blas_thread_init")
_INTERRUPTED = matches(
    r"^(?:\[(?:rank|default)\d{1,6}\]: ?|\[1,\d{1,6}\]<std(?:err|out)>:|\([^()]{0,80}pid=[^()]{1,80}\) )?\s{0,8}"
    r"KeyboardInterrupt\b|Received (?:2|Signals\.SIGINT) death signal|got signal: 2$"
    r"|Detected KeyboardInterrupt"
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the engine received to end a container.

    Attributes:
        kind: The kind of request: `kill` for an immediate SIGKILL, `timeout` for a stop that
            reached its timeout, `stop` for a stop that succeeded, or `interrupt` for SIGINT.
        requested: The time of the request, in Unix seconds.
        killed: The time of the SIGKILL, in Unix seconds; None if no SIGKILL was sent.
        is_signal_known: Whether the engine reported which signals were sent.
    """

    kind: Kind
    requested: float
    killed: float | None = None
    is_signal_known: bool = True


def read_request(case: Case) -> Request | None:
    """Return the request that ended a container; None if no request is known to have ended it."""
    if not case.has_ended:
        return None
    kills = [event for event in case.list_events("kill") if _is_before_end(case, event)]
    stops = case.list_events("stop")
    if case.exit_code is None or case.signal == _SIGKILL:
        return _read_kill(kills, stops, is_sure=case.exit_code is not None)
    return _read_stop(case, kills, stops)


def _is_before_end(case: Case, event: EngineEvent) -> bool:
    ended = case.evidence.ended
    return ended is None or event.time <= ended + _LATE_SECONDS


def _read_kill(
    kills: list[EngineEvent], stops: tuple[EngineEvent, ...], *, is_sure: bool
) -> Request | None:
    last = [event for event in kills if event.signal == _SIGKILL]
    if not last and is_sure:  # Podman does not report the signal.
        last = [event for event in kills if event.signal is None]
    if not last:
        return None
    killed = last[-1]
    before = [event for event in kills if event.time < killed.time and event is not killed]
    requested = [
        event
        for event in before
        if event.signal in _STOP_SIGNALS or (stops and event.signal != _SIGKILL)
    ]
    near = [event for event in requested if killed.time - event.time <= _LONGEST_GRACE_SECONDS]
    is_known = killed.signal is not None
    if near:
        return Request("timeout", near[0].time, killed.time, is_known)
    if stops and not is_known:
        return Request("stop", killed.time, killed.time, is_known)
    return Request("kill", killed.time, killed.time, is_known)


def _read_stop(
    case: Case, kills: list[EngineEvent], stops: tuple[EngineEvent, ...]
) -> Request | None:
    ended = case.evidence.ended
    if stops:
        requested = kills[0].time if kills else min(stops[0].time, ended or stops[0].time)
        return Request("stop", requested)
    near = [
        event for event in kills if ended is None or ended - event.time <= _LONGEST_GRACE_SECONDS
    ]
    if not near:
        return None
    if near[-1].signal in {_SIGTERM, None}:
        return Request("stop", near[0].time, None, near[-1].signal is not None)
    if near[-1].signal == _SIGINT:
        return Request("interrupt", near[-1].time)
    return None


def _detect_kill(case: Case) -> Finding | None:
    request = read_request(case)
    if request is None or request.kind != "kill":
        return None
    late = case.seconds_before_end(request.requested)
    against: tuple[str, ...] = ()
    if not request.is_signal_known:
        against = ("This engine does not report the signal; SIGKILL follows from the exit code.",)
    if late is not None and late > _PROMPT_SECONDS:
        against = (
            *against,
            (
                f"The end came {format_duration(late)} after the request; a process that waits in a"
                " driver or for a file system ends late."
            ),
        )
    return Finding(
        "kill-operator",
        f"The container was killed through the engine: `{case.program} kill`,"
        f" `{case.program} rm -f` or `compose kill`.",
        "high" if request.is_signal_known else "medium",
        (
            (
                "The engine reported the event `kill` with SIGKILL"
                f"{_describe_before(case, request.requested)}, and no SIGTERM before it."
            ),
        ),
        against,
        (
            f"Find who sent it: `history | grep {case.program}`, scripts, CI jobs, `last`.",
            f"No evidence points at the job itself. {_advise_start(case)}",
        ),
    )


def _advise_start(case: Case) -> str:
    evidence = case.evidence
    resume = "Resume from the last checkpoint"
    if not case.is_container:
        return f"{resume}, in `tmux` if the interruption was an accident."
    if evidence.compose_service:
        return f"{resume}: `docker compose up -d {evidence.compose_service}`."
    if evidence.settings is not None and evidence.settings.is_removed_at_end:
        return f"{resume}: `{case.program} run …`."
    return f"{resume}: `{case.program} start {evidence.name}`."


def _describe_before(case: Case, time: float) -> str:
    before = case.seconds_before_end(time)
    return "" if before is None else f" {format_duration(before)} before the end"


def _detect_timeout(case: Case) -> Finding | None:
    request = read_request(case)
    if request is None or request.kind != "timeout" or request.killed is None:
        return None
    waited = request.killed - request.requested
    return Finding(
        "stop-timeout",
        f"The container did not stop within {format_duration(waited)} of the request and was killed.",
        "high",
        (
            (
                f"The engine sent the stop signal{_describe_before(case, request.requested)} and SIGKILL"
                f" {format_duration(waited)} later; exit code 137 is not an OOM kill here."
            ),
        ),
        (),
        _advise_grace(case, waited),
    )


def _advise_grace(case: Case, waited: float) -> tuple[str, ...]:
    settings = case.evidence.settings
    longer = max(_LEAST_GRACE_SECONDS, int(3 * waited))
    service = case.evidence.compose_service
    init = (
        f"`init: true` for the service `{service}` in the Compose file"
        if service
        else f"`{case.program} run --init`"
    )
    # The kernel delivers SIGTERM to PID 1 only if PID 1 has a handler for it.
    first = (f"Use {init}: Python as PID 1 ignores SIGTERM unless it sets a handler.",)
    where = (
        f"`stop_grace_period: {longer}s` for the service `{service}`"
        if service
        else f"`{case.program} run --stop-timeout {longer}`, or `{case.program} stop -t {longer}`"
    )
    return (
        *(() if settings is not None and settings.has_init else first),
        f"Extend the grace period so that a checkpoint can be written: {where}.",
        "Save a checkpoint and exit on SIGTERM: `signal.signal(signal.SIGTERM, …)`.",
        (
            "A checkpoint that was being written may be truncated; check it with `torch.load`, or"
            " resume from the one before it."
        ),
    )


def _detect_stop(case: Case) -> Finding | None:
    request = read_request(case)
    if request is None or request.kind != "stop":
        return None
    code = case.exit_code
    against: tuple[str, ...] = ()
    if code not in {0, 143, None}:
        against = (f"Exit code {code} is neither 0 nor 143, so the shutdown may have failed.",)
    return Finding(
        "stop-graceful",
        f"The container stopped on request (`{case.program} stop`, `compose down` or a shutdown of"
        " the engine).",
        "high",
        (
            f"The engine reported the request{_describe_before(case, request.requested)}.",
            *_describe_code(case),
        ),
        against,
        (f"No fault was found. {_advise_start(case)}",),
    )


def _describe_code(case: Case) -> tuple[str, ...]:
    code = case.exit_code
    if code is None:
        return ()
    name = {137: "SIGKILL", 143: "SIGTERM", 130: "SIGINT"}.get(code)
    return (f"The exit code is {code}{f' ({name})' if name else ''}.",)


def _detect_interrupt(case: Case) -> Finding | None:
    if not case.has_ended or case.exit_code == 0:
        return None
    request = read_request(case)
    by_engine = request is not None and request.kind == "interrupt"
    by_code = case.signal == _SIGINT
    # OpenBLAS raises SIGINT in its own process if it cannot start a thread.
    by_log = case.search(_OF_OPENBLAS) is None and _ends_interrupted(case)
    if not (by_engine or by_code or by_log) or (request is not None and not by_engine):
        return None
    if case.signal not in {None, _SIGINT} or (not by_engine and is_at_limit(case)):
        return None
    sentences = []
    if request is not None:
        sentences.append(
            "The engine reported the event `kill` with"
            f" SIGINT{_describe_before(case, request.requested)}."
        )
    if by_code:
        sentences.append("SIGINT ended it (exit code 130 in a shell).")
    if by_log:
        sentences.append("The log ends with `KeyboardInterrupt`.")
    return Finding(
        "interrupted",
        f"{case.subject.capitalize()} was interrupted by SIGINT: Ctrl-C, `docker kill -s INT`, or a"
        " launcher that stops its ranks.",
        "high" if by_engine or by_code else "medium",
        tuple(sentences),
        (),
        (f"No fault was found. {_advise_start(case)}",),
    )


def _ends_interrupted(case: Case) -> bool:
    if not _INTERRUPTED.may_be_in(case.lines):
        return False
    return any(_INTERRUPTED(line) for line in case.lines[-_LAST_LINES:])


CAUSES: tuple[Cause, ...] = (
    Cause(
        "kill-operator",
        "Killed through the engine",
        "Exit code 137, and an event `kill` with signal 9 right before `die` without one with signal"
        " 15 before it.",
        "`docker kill`, `docker rm -f` or `docker compose kill`. No evidence points at the job"
        " itself.",
        (
            "Find who sent it: `history | grep docker`, scripts, CI jobs.",
            "Resume from the last checkpoint: `docker start NAME`.",
        ),
        "high",
        _detect_kill,
    ),
    Cause(
        "stop-timeout",
        "A stop that reached its timeout",
        "Exit code 137, and an event `kill` with signal 15, then one with signal 9.",
        "The container did not stop within the grace period: Python as PID 1 ignores SIGTERM unless"
        " it sets a handler, or writing its checkpoint takes longer.",
        (
            "Use `docker run --init`, or `init: true` in the Compose file.",
            "Extend the grace period: `stop_grace_period: 2m`, `docker stop -t 120`.",
            "Save a checkpoint on SIGTERM: `signal.signal(signal.SIGTERM, …)`.",
        ),
        "high",
        _detect_timeout,
    ),
    Cause(
        "stop-graceful",
        "Stopped on request",
        "An event `kill` with signal 15 or an event `stop`, and an exit code other than 137.",
        "`docker stop`, `docker compose down`, or a shutdown of the engine.",
        ("No fault was found. Resume from the last checkpoint: `docker start NAME`.",),
        "high",
        _detect_stop,
    ),
    Cause(
        "interrupted",
        "Interrupted",
        "Exit code 130, an event `kill` with signal 2, or `KeyboardInterrupt` at the end of the log.",
        "Ctrl-C, `docker kill -s INT`, or a launcher that stops its ranks.",
        (
            (
                "No fault was found. Resume from the last checkpoint, in `tmux` if the interruption was an"
                " accident."
            ),
        ),
        "high",
        _detect_interrupt,
    ),
)
