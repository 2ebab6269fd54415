"""Handle a container's end, from the event to the verdict.

The exit code and the time of an exit are taken from the exit's event. The values from a later
inspection are not used, because the inspection may already describe the next start. An OOM kill can
be reported up to a second after the exit, so the evaluation starts one second after the exit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from trainvitals.errors import SourceError
from trainvitals.sources.containers.container_state import Attempt, ContainerState, Ending
from trainvitals.sources.containers.deaths import (
    LATE_SECONDS,
    EvidenceBuilder,
    describe_death,
    fetch,
)
from trainvitals.sources.containers.engine import EngineClient
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.journal import Journal
from trainvitals.sources.containers.judgement import Judge, Judgement
from trainvitals.sources.containers.reading import Death
from trainvitals.sources.containers.registry import ContainerRegistry
from trainvitals.sources.containers.schedule import TaskQueue, report_failure
from trainvitals.workers import attempt as try_

_ORDINARY = frozenset({"finished", "stop-graceful", "kill-operator", "interrupted"})

_log = logging.getLogger(__name__)


class DeathHandler:
    """Determines the cause of each container exit, and counts and records each exit once.

    A method that is documented as "called with the lock" may be called only while the registry's
    lock is held. Such a method never blocks.

    Args:
        client: The client for the container engine.
        registry: The registry of known containers.
        builder: The builder that assembles the evidence.
        following: The object that follows containers' logs and stores the last log lines.
        tasks: The queue for functions that may block.
        judge: A function that returns the verdict on a container exit.
        journal: The journal in which container exits are recorded; None if there is no journal.
        clock: A function that returns the time, in seconds since 1970.

    Attributes:
        engine: The name and version of the engine, which is `docker` or `podman`; empty if the
            engine is unknown.
        engine_started: The time when the engine started; None if the time is unknown.
    """

    def __init__(
        self,
        client: EngineClient,
        registry: ContainerRegistry,
        builder: EvidenceBuilder,
        following: Following,
        tasks: TaskQueue,
        *,
        judge: Judge,
        journal: Journal | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine = ""
        self.engine_started: float | None = None
        self._client = client
        self._registry = registry
        self._builder = builder
        self._judge_evidence = judge
        self._following = following
        self._tasks = tasks
        self._journal = journal
        self._clock = clock
        self._complaint: str | None = None

    @property
    def complaint(self) -> str | None:
        """The reason why the last exit is not in the journal; None if the exit was recorded."""
        return self._complaint

    def begin(
        self, known: ContainerState, at: float, exit_code: int | None, *, is_witnessed: bool
    ) -> None:
        """Handle the end of a container's newest start; called with the lock.

        The end of this start must not have been handled before.
        """
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
        self._tasks.do(lambda: self._work_up(ending))

    def begin_unseen(self, known: ContainerState, at: float, exit_code: int | None = None) -> None:
        """Handle a container's end that no event reported; called with the lock."""
        known.attempt.heard_since = at
        self.begin(known, at, exit_code, is_witnessed=False)

    def begin_aside(self, known: ContainerState, event: ContainerEvent) -> None:
        """Handle the end of an earlier start, about which only an event is known.

        The method is called with the lock. The event may belong to another container that had the
        same name at that time.
        """
        attempt = Attempt(heard_since=event.time, is_over=True)
        ending = Ending(known, attempt, event.time, event.exit_code, True, event.id)  # noqa: FBT003 - an event
        self._tasks.do(lambda: self._work_up(ending))

    def confirm(self, ending: Ending, event: ContainerEvent) -> None:
        """Add the event of an end that was found before the event arrived; called with the lock."""
        ending.is_witnessed = True
        if not ending.is_judged:
            ending.time, ending.exit_code = event.time, event.exit_code
            ending.attempt.events.append(event.to_evidence())

    def lose(self, known: ContainerState) -> None:
        """Handle the removal of a container that no event reported; called with the lock."""
        if known.status in {"running", "paused"} and not known.attempt.is_over:
            self.begin_unseen(known, self._clock())
        self._registry.remove(known)

    def recall(self, ending: Ending) -> None:
        """Export a container exit from before the exporter's start.

        The exit is neither counted nor recorded in the journal.
        """
        self._fetch(ending)
        _, death = self._judge(ending)
        with self._registry.lock:
            ending.known.newest.take_death(death)

    def _work_up(self, ending: Ending) -> None:
        self._fetch(ending)
        with self._registry.lock:
            ending.is_fetched = True
            self._following.watch(ending.known)
        late = max(0.0, ending.time + LATE_SECONDS - self._clock())
        self._tasks.do_after(min(late, LATE_SECONDS), lambda: self._conclude(ending))

    def _fetch(self, ending: Ending) -> None:
        """Fetch the evidence about an end.

        If the evidence cannot be fetched, the verdict uses the data that is already known.
        """
        task = lambda: fetch(ending, self._client, self._following)  # noqa: E731 - used at once
        report_failure(try_("to inspect what died", task))

    def _conclude(self, ending: Ending) -> None:
        judged, death = self._judge(ending)
        if judged is not None:  # recorded before the metrics change
            report_failure(try_("to write down a death", lambda: self._write_down(*judged)))
        with self._registry.lock:
            known = ending.known.newest
            known.deaths[death.reason] += 1
            known.take_death(death)
            self._following.forget(ending)
            name = known.name
        level = logging.INFO if death.reason in _ORDINARY else logging.WARNING
        _log.log(level, "container %s: %s (%s)", name, death.summary, death.reason)

    def _judge(self, ending: Ending) -> tuple[tuple[Evidence, Judgement] | None, Death]:
        """Return the evidence about an end with the verdict, and the exit to export.

        If the evaluation fails, the first value is None, and the cause of the exit is unknown.
        """
        with self._registry.lock:
            ending.is_judged = True
        outcome = try_("to judge a death", lambda: self._judge_now(ending))
        report_failure(outcome)
        if outcome.value is None:
            summary = "It could not be judged why it ended."
            return None, Death(ending.time, ending.exit_code, "unknown", "", "low", summary)
        return outcome.value, describe_death(*outcome.value)

    def _judge_now(self, ending: Ending) -> tuple[Evidence, Judgement]:
        self._builder.catch_up()
        evidence = self._builder.build(
            ending, engine=self.engine, engine_started=self.engine_started
        )
        return evidence, self._judge_evidence(evidence)

    def _write_down(self, evidence: Evidence, verdict: Judgement) -> None:
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
