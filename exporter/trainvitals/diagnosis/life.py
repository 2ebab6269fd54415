"""One start of a container and its end, by the engine's events and by its state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainvitals.causes.evidence import EngineEvent, State
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.inspection import Inspection

# The engine writes the end into the state after it has told of it.
_SLACK_SECONDS = 5.0
_RUNS = frozenset({"running", "paused"})
_NEVER_RAN = frozenset({"created", "configured", "initialized"})


@dataclass(frozen=True, slots=True)
class Life:
    """One start of a container and its end.

    Attributes:
        started: When it was started; None where it never was, or nobody knows.
        ended: When it ended; None while it runs.
        exit_code: Its exit code; None while it runs, or where nobody knows.
        is_witnessed: Whether the exit code came with the event.
        state: What the engine says of this very start.
        events: What it told of it; None where nobody listened.
        earlier_deaths: When it died before.
    """

    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    is_witnessed: bool = False
    state: State | None = None
    events: tuple[EngineEvent, ...] | None = None
    earlier_deaths: tuple[float, ...] = ()


def find_life(inspection: Inspection | None, told: Sequence[ContainerEvent]) -> Life:
    """Tell of the last start that ended, or of the one that goes on where it is in trouble now.

    The exit code and the times are those of the event `die`: an inspection made later may be of
    the next start.

    Args:
        inspection: What the engine says of it now.
        told: The container's own events, the oldest first.
    """
    state = None if inspection is None else inspection.state
    deaths = [number for number, event in enumerate(told) if event.action == "die"]
    if not deaths or (state is not None and _fails_now(state, told[deaths[-1] :])):
        return _judge_by_state(inspection, told, deaths)
    at = deaths[-1]
    begin = max((n for n in range(at) if told[n].action == "start"), default=0)
    until = next((n for n in range(at, len(told)) if told[n].action == "start"), len(told))
    death = told[at]
    started = told[begin].time if told[begin].action == "start" else None
    is_of_it = state is not None and (
        state.status not in _RUNS
        and (state.finished is None or state.finished < death.time + _SLACK_SECONDS)
    )
    if started is None and is_of_it and state is not None:
        started = state.started
    return Life(
        started=started,
        ended=death.time,
        exit_code=death.exit_code,
        is_witnessed=death.exit_code is not None,
        state=state if is_of_it else None,
        events=tuple(event.to_evidence() for event in _with_creation(told, begin, until)),
        earlier_deaths=tuple(told[number].time for number in deaths[:-1]),
    )


def _fails_now(state: State, told: Sequence[ContainerEvent]) -> bool:
    """Whether it runs again after the death that `told` begins with, and is in trouble now.

    Or it could not even be started again, or it died once more and nobody heard of it.
    """
    if state.status in _RUNS:
        is_killing = any(event.action == "oom" for event in _after_start(told))
        return state.status == "paused" or state.health == "unhealthy" or is_killing
    if state.error:
        return True
    return state.finished is not None and state.finished > told[0].time + _SLACK_SECONDS


def _after_start(told: Sequence[ContainerEvent]) -> Sequence[ContainerEvent]:
    at = max((n for n, event in enumerate(told) if event.action == "start"), default=len(told))
    return told[at:]


def _judge_by_state(
    inspection: Inspection | None, told: Sequence[ContainerEvent], deaths: Sequence[int]
) -> Life:
    state = None if inspection is None else inspection.state
    begin = max((n for n, event in enumerate(told) if event.action == "start"), default=0)
    events = tuple(event.to_evidence() for event in _with_creation(told, begin, len(told))) or None
    earlier = tuple(told[number].time for number in deaths)
    if inspection is None or state is None:
        started = told[begin].time if told and told[begin].action == "start" else None
        return Life(started=started, events=events, earlier_deaths=earlier)
    if state.status in _RUNS:
        return Life(started=state.started, state=state, events=events, earlier_deaths=earlier)
    ended = state.finished
    if state.status in _NEVER_RAN:
        if not (state.error or state.exit_code):  # nobody has tried to start it
            return Life(state=state, events=events, earlier_deaths=earlier)
        ended = told[-1].time if told else inspection.created
    return Life(
        started=state.started,
        ended=ended,
        exit_code=state.exit_code,
        state=state,
        events=events,
        earlier_deaths=earlier,
    )


def _with_creation(
    told: Sequence[ContainerEvent], begin: int, until: int
) -> Iterable[ContainerEvent]:
    yield from (event for event in told[:begin] if event.action == "create")
    yield from told[begin:until]
