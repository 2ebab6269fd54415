"""Find a container's last start and exit from the engine's events and the container's state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.evidence import EngineEvent, State
from trainvitals.sources.containers.inspection import Inspection

# The engine reports a container's end before it updates the container's state.
_SLACK_SECONDS = 5.0
_RUNS = frozenset({"running", "paused"})
_NEVER_RAN = frozenset({"created", "configured", "initialized"})


@dataclass(frozen=True, slots=True)
class LastStart:
    """A container's last start, and the exit that followed.

    Attributes:
        started: The time when the container was started; None if the container was never started or
            the time is unknown.
        ended: The time when the container ended; None if the container is running or has not been
            started, or if the time is unknown.
        exit_code: The container's exit code; None if the container is running or the exit code is
            unknown.
        is_witnessed: Whether the exit code was reported by the event `die`.
        state: The container's state according to the engine; None if the state is unknown or
            describes a later start.
        events: The engine's events from this start on, and the container's creation; None if no
            events are known.
        earlier_deaths: The times of the container's earlier exits.
    """

    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    is_witnessed: bool = False
    state: State | None = None
    events: tuple[EngineEvent, ...] | None = None
    earlier_deaths: tuple[float, ...] = ()


def find_last_start(inspection: Inspection | None, own: Sequence[ContainerEvent]) -> LastStart:
    """Return the last start with an exit, or the current start if the container has a problem.

    If no exit is known, the current start is returned. The exit code and the time of the exit are
    taken from the event `die` if this event is known, because a later inspection may describe the
    next start.

    Args:
        inspection: The engine's current inspection of the container.
        own: The events of the container itself, the oldest first.
    """
    state = None if inspection is None else inspection.state
    deaths = [number for number, event in enumerate(own) if event.action == "die"]
    if not deaths or (state is not None and _fails_now(state, own[deaths[-1] :])):
        return _judge_by_state(inspection, own, deaths)
    at = deaths[-1]
    begin = max((n for n in range(at) if own[n].action == "start"), default=0)
    until = next((n for n in range(at, len(own)) if own[n].action == "start"), len(own))
    death = own[at]
    started = own[begin].time if own[begin].action == "start" else None
    is_of_it = state is not None and (
        state.status not in _RUNS
        and (state.finished is None or state.finished < death.time + _SLACK_SECONDS)
    )
    if started is None and is_of_it and state is not None:
        started = state.started
    return LastStart(
        started=started,
        ended=death.time,
        exit_code=death.exit_code,
        is_witnessed=death.exit_code is not None,
        state=state if is_of_it else None,
        events=tuple(event.to_evidence() for event in _with_creation(own, begin, until)),
        earlier_deaths=tuple(own[number].time for number in deaths[:-1]),
    )


def _fails_now(state: State, own: Sequence[ContainerEvent]) -> bool:
    """Return whether a container has a problem after the exit with which `own` begins.

    A running container has a problem if it is paused, is unhealthy or has had an OOM kill since the
    exit. Otherwise, the container has a problem if it could not be restarted, or if it ended again
    and no event reported the end.
    """
    if state.status in _RUNS:
        is_killing = any(event.action == "oom" for event in _after_start(own))
        return state.status == "paused" or state.health == "unhealthy" or is_killing
    if state.error:
        return True
    return state.finished is not None and state.finished > own[0].time + _SLACK_SECONDS


def _after_start(own: Sequence[ContainerEvent]) -> Sequence[ContainerEvent]:
    at = max((n for n, event in enumerate(own) if event.action == "start"), default=len(own))
    return own[at:]


def _judge_by_state(
    inspection: Inspection | None, own: Sequence[ContainerEvent], deaths: Sequence[int]
) -> LastStart:
    state = None if inspection is None else inspection.state
    begin = max((n for n, event in enumerate(own) if event.action == "start"), default=0)
    events = tuple(event.to_evidence() for event in _with_creation(own, begin, len(own))) or None
    earlier = tuple(own[number].time for number in deaths)
    if inspection is None or state is None:
        started = own[begin].time if own and own[begin].action == "start" else None
        return LastStart(started=started, events=events, earlier_deaths=earlier)
    if state.status in _RUNS:
        return LastStart(started=state.started, state=state, events=events, earlier_deaths=earlier)
    ended = state.finished
    if state.status in _NEVER_RAN:
        if not (state.error or state.exit_code):  # the container has not been started yet
            return LastStart(state=state, events=events, earlier_deaths=earlier)
        ended = own[-1].time if own else inspection.created
    return LastStart(
        started=state.started,
        ended=ended,
        exit_code=state.exit_code,
        state=state,
        events=events,
        earlier_deaths=earlier,
    )


def _with_creation(
    own: Sequence[ContainerEvent], begin: int, until: int
) -> Iterable[ContainerEvent]:
    yield from (event for event in own[:begin] if event.action == "create")
    yield from own[begin:until]
