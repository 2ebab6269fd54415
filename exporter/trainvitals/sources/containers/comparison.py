"""What happened while nobody listened: the list of all containers against what is known.

After each connect to the engine the two are compared, so that a death is found, too, that nobody
told of. The first time there is nothing to compare with: what is dead then died before we came.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trainvitals.errors import SourceError
from trainvitals.sources.containers.deaths import name_engine, recall_death
from trainvitals.sources.containers.documents import Document
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.errands import Errands
from trainvitals.sources.containers.inquest import Inquest
from trainvitals.sources.containers.inspection import Inspection, Listing, parse_listing
from trainvitals.sources.containers.inspector import MOST_LOOKS, Inspector, has_failed_to_start
from trainvitals.sources.containers.journal import Journal
from trainvitals.sources.containers.known import Attempt, Ending, Known, name_status
from trainvitals.sources.containers.reading import Death
from trainvitals.sources.containers.roster import Roster

_MOST_OLD_DEATHS = 32
_AGAIN_SECONDS = 10.0
# After a reconnect the engine tells once more what it still has, which says more than its list.
_RETOLD_SECONDS = 1.0
_SAME_SECONDS = 2.0
# The engine takes the time of a start before it tells of it.
_SLACK_SECONDS = 0.1
_EARLY_SECONDS = 1.0
_ENDED = frozenset({"exited", "dead", "stopped"})
_DOWN = _ENDED | {"restarting"}

_log = logging.getLogger(__name__)


class Comparison:
    """Compares what the engine lists with what is known.

    Args:
        client: The engine.
        roster: The containers that are known.
        inspector: Asks what a container is.
        inquest: Deals with deaths.
        errands: Has things done that take their time.
        journal: Has the verdicts of deaths of before; None for none.
        clock: The time of day, in seconds since 1970.
    """

    def __init__(
        self,
        client: EngineClient,
        roster: Roster,
        inspector: Inspector,
        inquest: Inquest,
        errands: Errands,
        *,
        journal: Journal | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._roster = roster
        self._inspector = inspector
        self._inquest = inquest
        self._errands = errands
        self._journal = journal
        self._clock = clock
        self._asked = 0
        self._is_first = True

    def ask(self) -> None:
        """Have it compared soon, in place of what was asked for before."""
        with self._roster.lock:
            self._asked += 1
            number = self._asked
        wait = 0.0 if self._is_first else _RETOLD_SECONDS
        self._errands.do_after(wait, lambda: self._compare(number))

    def _compare(self, number: int) -> None:
        if number != self._asked:
            return
        with self._roster.lock:
            told = {known.id: known.told for known in self._roster.list_present()}
        try:
            version = self._client.version()
            listed = [parse_listing(each) for each in self._client.list_containers()]
        except EngineError as error:
            _log.debug("%s", error)
            self._errands.do_after(_AGAIN_SECONDS, lambda: self._compare(number))
            return
        with self._roster.lock:
            is_first, self._is_first = self._is_first, False
            self._take_list(version, listed, told, is_first=is_first)
        self._inspect_all(listed, number, is_first=is_first)

    def _take_list(
        self, version: Document, listed: list[Listing], told: dict[str, int], *, is_first: bool
    ) -> None:
        """Let go of what is gone, and know what is new as far as the list tells."""
        self._inquest.engine = name_engine(version)
        there = {each.id for each in listed}
        for known in self._roster.list_present():
            # What came, or of which was told, since the question need not be in the answer.
            if known.id not in there and told.get(known.id) == known.told:
                self._inquest.lose(known)
        for each in listed:
            if each.id and self._roster.find(each.id) is None:
                self._take_up(each, is_first=is_first)

    def _take_up(self, listing: Listing, *, is_first: bool) -> None:
        holder = self._roster.containers.get(listing.name)
        if holder is not None and holder.removed is None:
            return  # it was renamed, or made while we asked
        known = self._roster.take_up(listing.name, listing.id)
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
            if self._errands.is_closed or number != self._asked:
                break
            inspection = self._compare_one(each.id, is_first=is_first)
            if inspection is not None:
                inspected.append(inspection)
        if is_first:
            self._recall_deaths(inspected)

    def _compare_one(self, container: str, *, is_first: bool) -> Inspection | None:
        for _ in range(MOST_LOOKS):
            with self._roster.lock:
                known = self._roster.find(container)
                told = 0 if known is None else known.told
            inspection = self._inspector.inspect(container) if container else None
            if inspection is None:
                return None
            with self._roster.lock:
                known = self._roster.find(container)
                if known is None:
                    return None  # no room for it, or gone
                if known.told == told:
                    self._notice_unseen(known, inspection, is_first=is_first)
                    known.removed = None
                    self._inspector.take(known, inspection)
                    return inspection
        return None

    def _notice_unseen(self, known: Known, inspection: Inspection, *, is_first: bool) -> None:
        state, attempt = inspection.state, known.attempt
        if attempt.is_found and known.inspection is None:  # it was only listed so far
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
            self._inquest.begin_unseen(known, at, state.exit_code)
        known.take_settings(inspection)
        self._inspector.notice_failed_start(known)

    def _notice_unseen_start(self, known: Known, inspection: Inspection) -> None:
        started, finished = inspection.state.started or 0.0, inspection.state.finished
        if known.attempt.started is not None:
            # The exit code is lost: the state has that of the last end, which may be a later one.
            if not known.attempt.is_over:
                is_later = finished is None or finished > started
                self._inquest.begin_unseen(known, started if is_later else finished or started)
            known.restarts = max((known.restarts or 0) + 1, inspection.restart_count or 0)
        known.attempt = take_up_attempt(inspection, self._clock())

    def _recall_deaths(self, inspected: list[Inspection]) -> None:
        """Judge those that were dead when we came, the newest."""
        dead = sorted(
            (each for each in inspected if has_ended(each) and each.state.finished),
            key=lambda each: each.state.finished or 0.0,
            reverse=True,
        )
        written = self._read_journal() if dead else {}
        left = _MOST_OLD_DEATHS
        for inspection in dead:
            finished = inspection.state.finished or 0.0
            told = written.get(inspection.id)
            with self._roster.lock:
                known = self._roster.find(inspection.id)
                if known is None or not known.attempt.is_over or known.ending is not None:
                    continue  # removed or started since it was asked about
                if told is not None and abs(told.time - finished) <= _SAME_SECONDS:
                    known.take_death(told)
                elif left:
                    left -= 1
                    self._plan_recall(known, inspection)

    def _plan_recall(self, known: Known, inspection: Inspection) -> None:
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
        self._errands.do(lambda: self._inquest.recall(ending))

    def _read_journal(self) -> dict[str, Death]:
        if self._journal is None:
            return {}
        try:
            entries = self._journal.read_entries()
        except SourceError as error:
            _log.info("%s", error)
            return {}
        return {entry.evidence.id: recall_death(entry) for entry in reversed(entries)}


def has_ended(inspection: Inspection) -> bool:
    """Tell whether it is down, also for a moment, after it ran."""
    state = inspection.state
    return state.status in _DOWN and state.finished is not None


def has_other_start(attempt: Attempt, inspection: Inspection) -> bool:
    """Tell whether it was started again since the start that is known."""
    started = inspection.state.started
    if started is None:
        return False
    return attempt.started is None or started > attempt.started + _SLACK_SECONDS


def take_up_attempt(inspection: Inspection, heard_since: float) -> Attempt:
    """Give the start that an inspection tells of, and that nobody told of."""
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
