"""What a container is, as the engine says when it is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inquest import Inquest
from trainvitals.sources.containers.inspection import Inspection, parse_inspection
from trainvitals.sources.containers.known import Attempt, Known
from trainvitals.sources.containers.roster import Roster

# How often it is asked again where something happened while the engine answered.
MOST_LOOKS = 3
_FAILED_START_CODES = frozenset({125, 126, 127, 128})

_log = logging.getLogger(__name__)


class Inspector:
    """Asks the engine about containers.

    An answer is of some moment since the question: what happened meanwhile is told by events and
    goes before it.

    Args:
        client: The engine.
        roster: The containers that are known.
        inquest: Deals with deaths.
        following: Whose logs are followed.
        clock: The time of day, in seconds since 1970.
    """

    def __init__(
        self,
        client: EngineClient,
        roster: Roster,
        inquest: Inquest,
        following: Following,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._roster = roster
        self._inquest = inquest
        self._following = following
        self._clock = clock

    def inspect(self, container: str) -> Inspection | None:
        """Ask what a container is; None where it is gone already, or the engine does not say."""
        try:
            return parse_inspection(self._client.inspect(container))
        except EngineError as error:
            _log.debug("%s", error)
            return None

    def look(self, known: Known, container: str) -> None:
        """Ask what a container is; one that is gone already is known by its events alone."""
        for _ in range(MOST_LOOKS):
            told = known.told
            inspection = self.inspect(container)
            with self._roster.lock:
                if inspection is None or known.id != container:
                    return
                known.take_settings(inspection)
                if known.told == told:
                    self.take(known, inspection)
                    return
                self._following.watch(known)

    def take(self, known: Known, inspection: Inspection) -> None:
        """Take over an answer that nothing has overtaken; called with the roster's lock."""
        known.take_settings(inspection)
        known.take_state(inspection)
        if inspection.name and inspection.name != known.name:
            self._roster.rename(known, inspection.name)
        attempt = known.attempt
        is_late = attempt.heard_since > 0 and attempt.started is None
        if inspection.pid is not None and is_late:
            attempt.started = inspection.state.started
        self._following.watch(known)

    def look_whether_it_started(self, known: Known, attempt: Attempt) -> None:
        """Find out whether it could not be started, which no event tells."""
        with self._roster.lock:
            container = known.id
            if known.attempt is not attempt or attempt.is_over or attempt.started is not None:
                return
        self.look(known, container)
        with self._roster.lock:
            if known.attempt is attempt and known.id == container:
                self.notice_failed_start(known)

    def notice_failed_start(self, known: Known) -> None:
        """Deal with one that could not be started; called with the roster's lock."""
        inspection = known.inspection
        if inspection is None or known.attempt.is_over or known.attempt.started is not None:
            return
        if has_failed_to_start(inspection):
            exit_code = inspection.state.exit_code
            self._inquest.begin(known, self._clock(), exit_code, is_witnessed=False)


def has_failed_to_start(inspection: Inspection) -> bool:
    """Tell whether the engine made it and could not start it."""
    state = inspection.state
    return state.status == "created" and bool(state.error or state.exit_code in _FAILED_START_CODES)
