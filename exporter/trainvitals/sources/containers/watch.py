"""Follows every container from its creation to its removal, by what the engine tells.

Events come on a thread of their own and only note what happened; what must be asked for is asked
by a few workers, so that an engine that is slow delays no event. An event can come twice, or after
its consequences were found in the engine's list: each start and each end counts once.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from trainvitals.sources.containers.comparison import Comparison
from trainvitals.sources.containers.errands import Errands
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inquest import Inquest
from trainvitals.sources.containers.inspector import Inspector
from trainvitals.sources.containers.known import Attempt, Ending, Known, name_health
from trainvitals.sources.containers.roster import Roster

# A container that could not be started says so within moments, without an event.
_START_LOOKS_SECONDS = (0.5, 2.0, 10.0)
_SAME_SECONDS = 2.0
_EARLY_SECONDS = 1.0
_HEALTH = "health_status: "
_BEGINNINGS = frozenset({"create", "start"})

_log = logging.getLogger(__name__)


class Watch:
    """Keeps the roster up to date by events.

    Any thread may call; nothing here waits for an engine.

    Args:
        roster: The containers that are known.
        inquest: Deals with deaths.
        inspector: Asks what a container is.
        comparison: Finds what no event told.
        following: Whose logs are followed.
        errands: Has things done that take their time.
        clock: The time of day, in seconds since 1970.
    """

    def __init__(
        self,
        roster: Roster,
        inquest: Inquest,
        inspector: Inspector,
        comparison: Comparison,
        following: Following,
        errands: Errands,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._roster = roster
        self._inquest = inquest
        self._inspector = inspector
        self._comparison = comparison
        self._following = following
        self._errands = errands
        self._clock = clock

    def take_event(self, event: ContainerEvent) -> None:
        """Note what happened, and see to what follows from it."""
        with self._roster.lock:
            known = self._find(event)
            if known is None:
                return
            known.told += 1
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
                    self._roster.rename(known, event.name)
                case _:
                    _choose_attempt(known, event).events.append(event.to_evidence())
                    self._change(known, action, event.action)

    def note_gap(self, why: str) -> None:
        """Note that events were cut off: what happens until the next comparison is unseen."""
        _log.info("the engine's events were cut off: %s", why)
        now = self._clock()
        with self._roster.lock:
            for known in self._roster.containers.values():
                if not known.attempt.is_over:
                    known.attempt.heard_since = now

    def note_connect(self, engine_started: float | None) -> None:
        """Note that events come from now on, and have what was missed found out.

        Args:
            engine_started: When the engine started; None where not known.
        """
        self._inquest.engine_started = engine_started
        self._comparison.ask()

    def _find(self, event: ContainerEvent) -> Known | None:
        known = self._roster.find(event.id)
        if known is None:
            known = self._take_up(event)
        if known is not None:
            known.image = event.image or known.image
            known.compose_project = event.compose_project or known.compose_project
            known.compose_service = event.compose_service or known.compose_service
        return known

    def _take_up(self, event: ContainerEvent) -> Known | None:
        """Know a container from now on; None where another has its name, or it is gone again."""
        holder = self._roster.containers.get(event.name)
        if holder is not None and holder.removed is None:
            if event.action not in _BEGINNINGS:
                if event.action == "die":
                    self._inquest.begin_aside(holder, event)
                return None
            self._inquest.lose(holder)
        if event.action == "destroy":
            return None
        known = self._roster.take_up(event.name, event.id)
        if event.action != "create":
            known.attempt.heard_since = event.time
        return known

    def _create(self, known: Known, event: ContainerEvent) -> None:
        known.attempt.events.append(event.to_evidence())
        if known.attempt.is_found or known.attempt.started is not None:
            return  # told once more, of what is known to have gone on
        known.status = "created"
        known.restarts = known.restarts or 0
        self._errands.do(lambda: self._inspector.look(known, event.id))
        attempt = known.attempt
        for seconds in _START_LOOKS_SECONDS:
            self._errands.do_after(
                seconds, lambda: self._inspector.look_whether_it_started(known, attempt)
            )

    def _start(self, known: Known, event: ContainerEvent) -> None:
        attempt = known.attempt
        if _is_known_start(attempt, event):
            attempt.events.append(event.to_evidence())
            if not attempt.is_over:
                attempt.heard_since = -math.inf
            known.starts = max(1, known.starts)
            return
        if attempt.is_running:  # its end was not told
            self._inquest.begin_unseen(known, event.time)
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
        self._errands.do(lambda: self._inspector.look(known, event.id))

    def _die(self, known: Known, event: ContainerEvent) -> None:
        attempt, ending = known.attempt, known.ending
        if ending is not None and _is_about(event, known, ending):
            self._inquest.confirm(ending, event)
        elif attempt.is_found and attempt.started is not None and event.time < attempt.started:
            self._inquest.begin_aside(known, event)
        else:
            if attempt.is_over:
                if attempt.ended is not None and event.time <= attempt.ended:
                    return
                known.attempt = Attempt(heard_since=event.time)  # its start was not told
            known.attempt.events.append(event.to_evidence())
            self._inquest.begin(known, event.time, event.exit_code, is_witnessed=True)

    def _destroy(self, known: Known, event: ContainerEvent) -> None:
        if known.attempt.is_running:
            self._inquest.begin_unseen(known, event.time)
        self._roster.remove(known)

    def _change(self, known: Known, action: str, whole: str) -> None:
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
                self._errands.do(lambda: self._inspector.look(known, container))


def find_log_start(known: Known, started: float) -> float | None:
    """Tell from when on its log is of this start; None for all of it.

    A process writes before the engine says that it has started.
    """
    return max(known.earlier[-1], started - _EARLY_SECONDS) if known.earlier else None


def _choose_attempt(known: Known, event: ContainerEvent) -> Attempt:
    """Choose the start that an event is about: one can be told after the next start."""
    attempt, ending = known.attempt, known.ending
    is_late = attempt.started is not None and event.time < attempt.started
    if is_late and ending is not None and ending.container == event.id:
        return ending.attempt
    return attempt


def _is_known_start(attempt: Attempt, event: ContainerEvent) -> bool:
    """Tell whether the engine's list had the start already that it now tells of."""
    if not attempt.is_found or attempt.started is None:
        return False
    if attempt.is_over:
        return attempt.ended is not None and event.time <= attempt.ended
    return event.time <= attempt.started + _SAME_SECONDS


def _is_about(event: ContainerEvent, known: Known, ending: Ending) -> bool:
    """Tell whether an event `die` is about an end that was found before it was told."""
    if ending.is_witnessed or ending.container != event.id:
        return False
    attempt = known.attempt
    is_older = attempt.is_found and attempt.started is not None and event.time < attempt.started
    since = ending.attempt.started
    return (since is None or event.time >= since) and (attempt is ending.attempt or is_older)
