"""What somebody asked the engine for before the end, read from the order of its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.causes.case import Case
from trainvitals.causes.evidence import EngineEvent

Kind = Literal["kill", "timeout", "stop", "interrupt"]

_SIGINT, _SIGQUIT, _SIGKILL, _SIGTERM = 2, 3, 9, 15
# Others, such as SIGUSR1 for a checkpoint, ask for an end only where the image says so, and then
# the engine tells of a stop.
_ASKING = frozenset({None, _SIGINT, _SIGQUIT, _SIGTERM})
_KILLED = 137
# A SIGTERM that is older than that did not make it end, and no grace period is that long.
_LONGEST_GRACE_SECONDS = 3600.0
# `stop` may come after `die`.
_LATE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Request:
    """An end that was asked for through the engine.

    Attributes:
        kind: `kill`: SIGKILL at once; `timeout`: a stop that ran into its timeout; `stop`: a stop
            that it obeyed; `interrupt`: SIGINT.
        asked: When it was asked to end.
        killed: When SIGKILL followed; None where it did not.
        is_signal_known: Whether the engine told the signals.
    """

    kind: Kind
    asked: float
    killed: float | None = None
    is_signal_known: bool = True


def read_request(case: Case) -> Request | None:
    """Read who asked for the end from the events; None where nobody did, or nobody listened."""
    if not case.has_ended:
        return None
    kills = [event for event in case.list_events("kill") if _is_before_end(case, event)]
    stops = case.list_events("stop")
    if case.exit_code in {_KILLED, None}:
        return _read_kill(kills, stops, is_sure=case.exit_code == _KILLED)
    return _read_stop(case, kills, stops)


def _is_before_end(case: Case, event: EngineEvent) -> bool:
    ended = case.evidence.ended
    return ended is None or event.time <= ended + _LATE_SECONDS


def _read_kill(
    kills: list[EngineEvent], stops: tuple[EngineEvent, ...], *, is_sure: bool
) -> Request | None:
    last = [event for event in kills if event.signal == _SIGKILL]
    if not last and is_sure:  # Podman does not tell the signal
        last = [event for event in kills if event.signal is None]
    if not last:
        return None
    killed = last[-1]
    before = [event for event in kills if event.time < killed.time and event is not killed]
    asked = [
        event for event in before if event.signal in _ASKING or (stops and event.signal != _SIGKILL)
    ]
    near = [event for event in asked if killed.time - event.time <= _LONGEST_GRACE_SECONDS]
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
        asked = kills[0].time if kills else min(stops[0].time, ended or stops[0].time)
        return Request("stop", asked)
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
