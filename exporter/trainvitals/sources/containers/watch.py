"""Track every container from its creation to its removal with the engine's events.

The thread that receives events only updates the registry. Any requests that an event requires are
sent by a few worker threads, so a slow engine does not delay later events. An event can arrive
twice, or after the engine's list has already shown its effect. Nevertheless, each start and each
exit is counted once.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from trainvitals.sources.containers.comparison import Comparison
from trainvitals.sources.containers.container_state import (
    Attempt,
    ContainerState,
    Ending,
    name_health,
)
from trainvitals.sources.containers.death_handler import DeathHandler
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inspector import Inspector
from trainvitals.sources.containers.registry import ContainerRegistry
from trainvitals.sources.containers.schedule import TaskQueue

# No event reports a failed start, but an inspection shows it soon after the container's creation.
_START_LOOKS_SECONDS = (0.5, 2.0, 10.0)
_SAME_SECONDS = 2.0
_EARLY_SECONDS = 1.0
_HEALTH = "health_status: "
_BEGINNINGS = frozenset({"create", "start"})

_log = logging.getLogger(__name__)


class Watch:
    """Updates the registry from the engine's events.

    Any thread may call the methods of this class; no method waits for an engine.

    Args:
        registry: The registry of known containers.
        handler: The handler for container exits.
        inspector: The inspector that inspects containers.
        comparison: The comparison that finds changes that no event reported.
        following: The object that selects the logs to follow.
        tasks: The queue for tasks that may block.
        clock: A function that returns the time, in seconds since 1970.
    """

    def __init__(
        self,
        registry: ContainerRegistry,
        handler: DeathHandler,
        inspector: Inspector,
        comparison: Comparison,
        following: Following,
        tasks: TaskQueue,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._handler = handler
        self._inspector = inspector
        self._comparison = comparison
        self._following = following
        self._tasks = tasks
        self._clock = clock

    def take_event(self, event: ContainerEvent) -> None:
        """Update the registry from an event, and schedule the tasks that the event requires."""
        with self._registry.lock:
            known = self._find(event)
            if known is None:
                return
            known.event_count += 1
            known.changed = self._clock()
            action, _, _ = event.action.partition(":")
            match action:
                case "create":
                    self._create(known, event)
                case "start":
                    self._start(known, event)
                case "die":
                    self._die(known, event)
                case "destroy":
                    self._destroy(known, event)
                case "rename":
                    self._registry.rename(known, event.name)
                case _:
                    _choose_attempt(known, event).events.append(event.to_evidence())
                    self._change(known, action, event.action)

    def note_gap(self, why: str) -> None:
        """Record that the event stream was interrupted and that events may have been missed."""
        _log.info("the engine's events were cut off: %s", why)
        now = self._clock()
        with self._registry.lock:
            for known in self._registry.containers.values():
                if not known.attempt.is_over:
                    known.attempt.heard_since = now

    def note_connect(self, engine_started: float | None) -> None:
        """Record the engine's start, and request a comparison with the engine's list.

        Args:
            engine_started: The time when the engine started; None if the time is unknown.
        """
        self._handler.engine_started = engine_started
        self._comparison.ask()

    def _find(self, event: ContainerEvent) -> ContainerState | None:
        known = self._registry.find(event.id)
        if known is None:
            known = self._take_up(event)
        if known is not None:
            known.image = event.image or known.image
            known.compose_project = event.compose_project or known.compose_project
            known.compose_service = event.compose_service or known.compose_service
        return known

    def _take_up(self, event: ContainerEvent) -> ContainerState | None:
        """Add the container that an event concerns to the registry, and return its state.

        The container is not added, and the result is None, if the event reports the container's
        removal. The same applies if another existing container has the name, unless the event
        reports a creation or a start.
        """
        holder = self._registry.containers.get(event.name)
        if holder is not None and holder.removed is None:
            if event.action not in _BEGINNINGS:
                if event.action == "die":
                    self._handler.begin_aside(holder, event)
                return None
            self._handler.lose(holder)
        if event.action == "destroy":
            return None
        known = self._registry.take_up(event.name, event.id)
        if event.action != "create":
            known.attempt.heard_since = event.time
        return known

    def _create(self, known: ContainerState, event: ContainerEvent) -> None:
        known.attempt.events.append(event.to_evidence())
        if known.attempt.is_found or known.attempt.started is not None:
            return  # the event is outdated, because the container has changed since
        known.status = "created"
        known.restarts = known.restarts or 0
        self._tasks.do(lambda: self._inspector.refresh(known, event.id))
        attempt = known.attempt
        for seconds in _START_LOOKS_SECONDS:
            self._tasks.do_after(seconds, lambda: self._inspector.check_started(known, attempt))

    def _start(self, known: ContainerState, event: ContainerEvent) -> None:
        attempt = known.attempt
        if _is_known_start(attempt, event):
            attempt.events.append(event.to_evidence())
            if not attempt.is_over:
                attempt.heard_since = -math.inf
            known.starts = max(1, known.starts)
            return
        if attempt.is_running:  # no event reported the end
            self._handler.begin_unseen(known, event.time)
        created = [each for each in attempt.events if each.action == "create"]
        if known.starts or (attempt.is_found and attempt.started is not None):
            known.restarts = (known.restarts or 0) + 1
            created = []
        known.starts += 1
        known.status = "running"
        known.removed = None
        known.attempt = Attempt(started=event.time, log_since=find_log_start(known, event.time))
        known.attempt.events.extend([*created, event.to_evidence()])
        self._following.watch(known)
        self._tasks.do(lambda: self._inspector.refresh(known, event.id))

    def _die(self, known: ContainerState, event: ContainerEvent) -> None:
        attempt, ending = known.attempt, known.ending
        if ending is not None and _is_about(event, known, ending):
            self._handler.confirm(ending, event)
        elif attempt.is_found and attempt.started is not None and event.time < attempt.started:
            self._handler.begin_aside(known, event)
        else:
            if attempt.is_over:
                if attempt.ended is not None and event.time <= attempt.ended:
                    return
                known.attempt = Attempt(heard_since=event.time)  # no event reported the start
            known.attempt.events.append(event.to_evidence())
            self._handler.begin(known, event.time, event.exit_code, is_witnessed=True)

    def _destroy(self, known: ContainerState, event: ContainerEvent) -> None:
        if known.attempt.is_running:
            self._handler.begin_unseen(known, event.time)
        self._registry.remove(known)

    def _change(self, known: ContainerState, action: str, whole: str) -> None:
        match action:
            case "oom":
                known.count_oom_kills("event")
            case "pause":
                known.status = "paused"
            case "unpause":
                known.status = "running"
            case "health_status":
                known.health = name_health(whole.removeprefix(_HEALTH))
            case "update":
                container = known.id
                self._tasks.do(lambda: self._inspector.refresh(known, container))


def find_log_start(known: ContainerState, started: float) -> float | None:
    """Return the time from which a container's log belongs to a new start; None for the whole log.

    The returned time precedes the start, because a process may write to its log before the engine
    sends the event.
    """
    return max(known.earlier[-1], started - _EARLY_SECONDS) if known.earlier else None


def _choose_attempt(known: ContainerState, event: ContainerEvent) -> Attempt:
    """Return the start that an event belongs to: the container's latest or previous start."""
    attempt, ending = known.attempt, known.ending
    is_late = attempt.started is not None and event.time < attempt.started
    if is_late and ending is not None and ending.container == event.id:
        return ending.attempt
    return attempt


def _is_known_start(attempt: Attempt, event: ContainerEvent) -> bool:
    """Return whether the start in an event is already known from the engine's list."""
    if not attempt.is_found or attempt.started is None:
        return False
    if attempt.is_over:
        return attempt.ended is not None and event.time <= attempt.ended
    return event.time <= attempt.started + _SAME_SECONDS


def _is_about(event: ContainerEvent, known: ContainerState, ending: Ending) -> bool:
    """Return whether a `die` event reports an exit that was found before the event arrived."""
    if ending.is_witnessed or ending.container != event.id:
        return False
    attempt = known.attempt
    is_older = attempt.is_found and attempt.started is not None and event.time < attempt.started
    since = ending.attempt.started
    return (since is None or event.time >= since) and (attempt is ending.attempt or is_older)
