"""Compare the engine's list of all containers with the exporter's registry of known containers.

The list and the registry are compared after each connection to the container engine, so that exits
without an event are also found. At the first comparison, the registry is empty, so containers that
are not running exited before the exporter started.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trainvitals.errors import SourceError
from trainvitals.sources.containers.container_state import (
    Attempt,
    ContainerState,
    Ending,
    name_status,
)
from trainvitals.sources.containers.death_handler import DeathHandler
from trainvitals.sources.containers.deaths import describe_death
from trainvitals.sources.containers.documents import Document
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.inspection import (
    Inspection,
    Listing,
    describe_engine,
    parse_listing,
)
from trainvitals.sources.containers.inspector import MOST_LOOKS, Inspector, has_failed_to_start
from trainvitals.sources.containers.journal import Journal
from trainvitals.sources.containers.reading import Death
from trainvitals.sources.containers.registry import ContainerRegistry
from trainvitals.sources.containers.schedule import TaskQueue

_MOST_OLD_DEATHS = 32
_AGAIN_SECONDS = 10.0
# After a reconnection, the engine repeats the events that it still has. These events contain more
# information than the list, so the comparison waits for the events.
_REPLAY_SECONDS = 1.0
_SAME_SECONDS = 2.0
# The engine determines the time of a start before it sends the event.
_SLACK_SECONDS = 0.1
_EARLY_SECONDS = 1.0
_ENDED = frozenset({"exited", "dead", "stopped"})
_DOWN = _ENDED | {"restarting"}

_log = logging.getLogger(__name__)


class Comparison:
    """Compares the engine's list of all containers with the registry of known containers.

    Args:
        client: The client for the container engine.
        registry: The registry of known containers.
        inspector: The inspector that inspects containers.
        handler: The handler for container exits.
        tasks: The queue for functions that may block.
        journal: The journal that contains the verdicts on earlier exits; None if there is no
            journal.
        on_first: A function that is called after the first comparison.
        clock: A function that returns the time, in seconds since 1970.
    """

    def __init__(
        self,
        client: EngineClient,
        registry: ContainerRegistry,
        inspector: Inspector,
        handler: DeathHandler,
        tasks: TaskQueue,
        *,
        journal: Journal | None,
        on_first: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._registry = registry
        self._inspector = inspector
        self._handler = handler
        self._tasks = tasks
        self._journal = journal
        self._on_first = on_first
        self._clock = clock
        self._asked = 0
        self._is_first = True

    def ask(self) -> None:
        """Schedule a comparison, and cancel an earlier comparison that has not been completed."""
        with self._registry.lock:
            self._asked += 1
            number = self._asked
        wait = 0.0 if self._is_first else _REPLAY_SECONDS
        self._tasks.do_after(wait, lambda: self._compare(number))

    def _compare(self, number: int) -> None:
        if number != self._asked:
            return
        with self._registry.lock:
            counts = {known.id: known.event_count for known in self._registry.list_present()}
        try:
            version = self._client.version()
            listed = [parse_listing(each) for each in self._client.list_containers()]
        except EngineError as error:
            _log.debug("%s", error)
            self._tasks.do_after(_AGAIN_SECONDS, lambda: self._compare(number))
            return
        with self._registry.lock:
            is_first, self._is_first = self._is_first, False
            self._take_list(version, listed, counts, is_first=is_first)
        self._inspect_all(listed, number, is_first=is_first)

    def _take_list(
        self, version: Document, listed: list[Listing], counts: dict[str, int], *, is_first: bool
    ) -> None:
        """Remove containers that are not in the engine's list, and add new containers."""
        self._handler.engine = describe_engine(version)
        there = {each.id for each in listed}
        for known in self._registry.list_present():
            # A container with an event since the request may be missing from the answer.
            if known.id not in there and counts.get(known.id) == known.event_count:
                self._handler.lose(known)
        for each in listed:
            if each.id and self._registry.find(each.id) is None:
                self._take_up(each, is_first=is_first)

    def _take_up(self, listing: Listing, *, is_first: bool) -> None:
        holder = self._registry.containers.get(listing.name)
        if holder is not None and holder.removed is None:
            return  # the container was renamed or created since the request
        known = self._registry.take_up(listing.name, listing.id)
        known.image = listing.image
        known.compose_project = listing.compose_project
        known.compose_service = listing.compose_service
        known.status = name_status(listing.status)
        known.changed = listing.created or known.changed
        known.attempt = Attempt(
            is_found=True,
            heard_since=self._clock(),
            is_over=is_first and listing.status in _DOWN,
        )

    def _inspect_all(self, listed: list[Listing], number: int, *, is_first: bool) -> None:
        inspected = []
        for each in listed:
            if self._tasks.is_closed or number != self._asked:
                break
            inspection = self._compare_one(each.id, is_first=is_first)
            if inspection is not None:
                inspected.append(inspection)
        if is_first:
            self._on_first()
            self._recall_deaths(inspected)

    def _compare_one(self, container: str, *, is_first: bool) -> Inspection | None:
        for _ in range(MOST_LOOKS):
            with self._registry.lock:
                known = self._registry.find(container)
                event_count = 0 if known is None else known.event_count
            inspection = self._inspector.inspect(container) if container else None
            if inspection is None:
                return None
            with self._registry.lock:
                known = self._registry.find(container)
                if known is None:
                    return None  # removed, or dropped because the registry is full
                if known.event_count == event_count:
                    self._notice_unseen(known, inspection, is_first=is_first)
                    known.removed = None
                    self._inspector.take(known, inspection)
                    return inspection
        return None

    def _notice_unseen(
        self, known: ContainerState, inspection: Inspection, *, is_first: bool
    ) -> None:
        state, attempt = inspection.state, known.attempt
        if attempt.is_found and known.inspection is None:  # only the list's entry is known so far
            known.attempt = take_up_attempt(inspection, attempt.heard_since)
            known.attempt.ended = state.finished
            known.attempt.is_over = attempt.is_over or (
                is_first and (has_ended(inspection) or has_failed_to_start(inspection))
            )
            if is_first:
                known.changed = state.finished or known.changed
        elif has_other_start(attempt, inspection):
            self._notice_unseen_start(known, inspection)
        if has_ended(inspection) and not known.attempt.is_over:
            at = state.finished or self._clock()
            self._handler.begin_unseen(known, at, state.exit_code)
        known.take_settings(inspection)
        self._inspector.notice_failed_start(known)

    def _notice_unseen_start(self, known: ContainerState, inspection: Inspection) -> None:
        started, finished = inspection.state.started or 0.0, inspection.state.finished
        if known.attempt.started is not None:
            # The exit code is lost: the state contains the exit code of the last end, which may be
            # later.
            if not known.attempt.is_over:
                is_later = finished is None or finished > started
                self._handler.begin_unseen(known, started if is_later else finished or started)
            known.restarts = max((known.restarts or 0) + 1, inspection.restart_count or 0)
        known.attempt = take_up_attempt(inspection, self._clock())

    def _recall_deaths(self, inspected: list[Inspection]) -> None:
        """Export the most recent exits before the exporter's start.

        The verdict on an exit is read from the journal. For at most 32 exits that are not in the
        journal, the cause is determined.
        """
        dead = sorted(
            (each for each in inspected if has_ended(each) and each.state.finished),
            key=lambda each: each.state.finished or 0.0,
            reverse=True,
        )
        written = self._read_journal() if dead else {}
        left = _MOST_OLD_DEATHS
        for inspection in dead:
            finished = inspection.state.finished or 0.0
            record = written.get(inspection.id)
            with self._registry.lock:
                known = self._registry.find(inspection.id)
                if known is None or not known.attempt.is_over or known.ending is not None:
                    continue  # removed or started since the request
                if record is not None and abs(record.time - finished) <= _SAME_SECONDS:
                    known.take_death(record)
                elif left:
                    left -= 1
                    self._plan_recall(known, inspection)

    def _plan_recall(self, known: ContainerState, inspection: Inspection) -> None:
        ending = Ending(
            known,
            known.attempt,
            inspection.state.finished or 0.0,
            inspection.state.exit_code,
            is_witnessed=False,
            container=inspection.id,
            inspection=inspection,
            state=inspection.state,
        )
        self._tasks.do(lambda: self._handler.recall(ending))

    def _read_journal(self) -> dict[str, Death]:
        if self._journal is None:
            return {}
        try:
            entries = self._journal.read_entries()
        except SourceError as error:
            _log.info("%s", error)
            return {}
        return {
            entry.evidence.id: describe_death(entry.evidence, entry) for entry in reversed(entries)
        }


def has_ended(inspection: Inspection) -> bool:
    """Return whether a container has run and is not running now, even if it will be restarted."""
    state = inspection.state
    return state.status in _DOWN and state.finished is not None


def has_other_start(attempt: Attempt, inspection: Inspection) -> bool:
    """Return whether an inspection shows a later start than the known start of the container."""
    started = inspection.state.started
    if started is None:
        return False
    return attempt.started is None or started > attempt.started + _SLACK_SECONDS


def take_up_attempt(inspection: Inspection, heard_since: float) -> Attempt:
    """Return the start that an inspection describes and that no event reported."""
    started, finished = inspection.state.started, inspection.state.finished
    ended_before = started is not None and finished is not None and finished < started
    is_first = started is None or not (inspection.restart_count or ended_before)
    return Attempt(
        started=started,
        log_since=None if is_first or started is None else started - _EARLY_SECONDS,
        heard_since=heard_since,
        is_found=True,
        pid=inspection.pid,
    )
