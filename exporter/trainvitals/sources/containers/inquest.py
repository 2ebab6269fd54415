"""From the end of a container to the verdict.

The exit code and time of a death are those of its event; an inspection made later can belong to
the next start already and never overwrites them. A kill for memory can be told up to a second
after the death, so the verdict waits for that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trainvitals.causes.evidence import Evidence
from trainvitals.causes.verdict import Verdict
from trainvitals.crew import attempt as try_
from trainvitals.errors import SourceError
from trainvitals.sources.containers.agenda import report_failure
from trainvitals.sources.containers.deaths import (
    LATE_SECONDS,
    Registrar,
    describe_death,
    fetch,
)
from trainvitals.sources.containers.engine import EngineClient
from trainvitals.sources.containers.errands import Errands
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.journal import Journal
from trainvitals.sources.containers.known import Attempt, Ending, Known
from trainvitals.sources.containers.reading import Death
from trainvitals.sources.containers.roster import Roster

_ORDINARY = frozenset({"finished", "stop-graceful", "kill-operator", "interrupted"})

_log = logging.getLogger(__name__)


class Inquest:
    """Has each death judged, counted and written down, once.

    What is said to be called with the lock wants that of the roster; nothing there waits.

    Args:
        client: The engine.
        roster: The containers that are known.
        registrar: Judges deaths.
        following: Has the last lines of some.
        errands: Has things done that take their time.
        journal: Where deaths are written down; None for nowhere.
        clock: The time of day, in seconds since 1970.

    Attributes:
        engine: `docker` or `podman` with its version; empty where not known.
        engine_started: When the engine started; None where not known.
    """

    def __init__(
        self,
        client: EngineClient,
        roster: Roster,
        registrar: Registrar,
        following: Following,
        errands: Errands,
        *,
        journal: Journal | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine = ""
        self.engine_started: float | None = None
        self._client = client
        self._roster = roster
        self._registrar = registrar
        self._following = following
        self._errands = errands
        self._journal = journal
        self._clock = clock
        self._complaint: str | None = None

    @property
    def complaint(self) -> str | None:
        """Why deaths are not written down; None where they are."""
        return self._complaint

    def begin(self, known: Known, at: float, exit_code: int | None, *, is_witnessed: bool) -> None:
        """Deal with the end of the newest start, which is not over yet; called with the lock."""
        ending = Ending(
            known,
            known.attempt,
            at,
            exit_code,
            is_witnessed,
            known.id,
            inspection=known.inspection,
            earlier=tuple(known.earlier),
        )
        known.end(at)
        known.ending = ending
        known.earlier.append(at)
        self._errands.do(lambda: self._work_up(ending))

    def begin_unseen(self, known: Known, at: float, exit_code: int | None = None) -> None:
        """Deal with an end that nobody told of; called with the lock."""
        known.attempt.heard_since = at
        self.begin(known, at, exit_code, is_witnessed=False)

    def begin_aside(self, known: Known, event: ContainerEvent) -> None:
        """Deal with the end of an earlier start, of which nothing else is known.

        Called with the lock. Another container may have had the name then.
        """
        attempt = Attempt(heard_since=event.time, is_over=True)
        ending = Ending(known, attempt, event.time, event.exit_code, True, event.id)  # noqa: FBT003 - told by the event
        self._errands.do(lambda: self._work_up(ending))

    def confirm(self, ending: Ending, event: ContainerEvent) -> None:
        """Take over what the event says of an end that was found before; called with the lock."""
        ending.is_witnessed = True
        if not ending.is_judged:
            ending.time, ending.exit_code = event.time, event.exit_code
            ending.attempt.events.append(event.to_evidence())

    def lose(self, known: Known) -> None:
        """Deal with a container that is gone, and nobody told; called with the lock."""
        if known.status in {"running", "paused"} and not known.attempt.is_over:
            self.begin_unseen(known, self._clock())
        self._roster.remove(known)

    def recall(self, ending: Ending) -> None:
        """Judge a death of before we came; it is told of, and neither counted nor written down."""
        self._fetch(ending)
        _, death = self._judge(ending)
        with self._roster.lock:
            ending.known.newest.take_death(death)

    def _work_up(self, ending: Ending) -> None:
        self._fetch(ending)
        with self._roster.lock:
            ending.is_fetched = True
            self._following.watch(ending.known)
        late = max(0.0, ending.time + LATE_SECONDS - self._clock())
        self._errands.do_after(min(late, LATE_SECONDS), lambda: self._conclude(ending))

    def _fetch(self, ending: Ending) -> None:
        """Fetch what there is: without it there is less to judge by, and still a death."""
        task = lambda: fetch(ending, self._client, self._following)  # noqa: E731 - done at once
        report_failure(try_("to look at what died", task))

    def _conclude(self, ending: Ending) -> None:
        judged, death = self._judge(ending)
        if judged is not None:  # written first, so that who hears of it can read why
            report_failure(try_("to write down a death", lambda: self._write_down(*judged)))
        with self._roster.lock:
            known = ending.known.newest
            known.deaths[death.reason] += 1
            known.take_death(death)
            self._following.forget(ending)
            name = known.name
        level = logging.INFO if death.reason in _ORDINARY else logging.WARNING
        _log.log(level, "container %s: %s (%s)", name, death.summary, death.reason)

    def _judge(self, ending: Ending) -> tuple[tuple[Evidence, Verdict] | None, Death]:
        """Judge it; what cannot be judged is a death all the same."""
        with self._roster.lock:
            ending.is_judged = True
        outcome = try_("to judge a death", lambda: self._look(ending))
        report_failure(outcome)
        if outcome.value is None:
            summary = "It could not be judged why it ended."
            return None, Death(ending.time, ending.exit_code, "unknown", "", "low", summary)
        return outcome.value, describe_death(*outcome.value)

    def _look(self, ending: Ending) -> tuple[Evidence, Verdict]:
        self._registrar.catch_up()
        return self._registrar.judge(ending, engine=self.engine, engine_started=self.engine_started)

    def _write_down(self, evidence: Evidence, verdict: Verdict) -> None:
        if self._journal is None:
            return
        try:
            self._journal.write(evidence, verdict)
        except SourceError as error:
            if self._complaint is None:
                _log.warning("the death of %s is not written down: %s", evidence.name, error)
            self._complaint = str(error)
        else:
            self._complaint = None
