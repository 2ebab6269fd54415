"""Running the collectors: apart from each other, timed, and never longer than the scrape may take.

A scrape is a request for some collectors by a deadline. Requests that overlap share one reading,
and a finished reading serves for another `REUSE_SECONDS`. One thread, the runner's, decides;
collectors run on the threads of a crew. A collector that

- raises (on purpose or by a bug) is missing from this scrape, with the reason;
- does not return in time is missing, and is left alone until it returns: what it then brings is
  thrown away, because it may have been read long ago;
- keeps failing is asked less often, at most `LONGEST_PAUSE_SECONDS` apart.

How long a collector is waited for is learned: `PATIENCE_FACTOR` times the longest of its last
readings, at least `SHORTEST_PATIENCE_SECONDS`, at most what the scrape has left. So a call that
hangs for ever costs the scrapes before it is known to hang half a second, and later ones nothing.

This module holds the one place where a bug in a collector is caught (through the crew).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from trainvitals import __version__
from trainvitals.collectors.collector import Collector
from trainvitals.crew import HELP_AFTER_SECONDS, Crew, Outcome
from trainvitals.errors import SourceError
from trainvitals.families import Block, Family, label_samples

REUSE_SECONDS = 0.2
PATIENCE_FACTOR = 25.0
SHORTEST_PATIENCE_SECONDS = 0.4
LONGEST_PAUSE_SECONDS = 8.0
_FAILURES_BEFORE_PAUSE = 3
_REMEMBERED_DURATIONS = 8
_HANDS_AT_START = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """How one collector fared in a scrape.

    Attributes:
        collector: Its name.
        success: Its reading is here and whole.
        seconds: How long the latest reading took; for one that was late, how long it was waited
            for; None before the first.
        reason: Why it did not succeed; None when it did.
        timeouts: How many of its readings were late since the exporter started.
        omitted: How many label values its bounds left out of the latest reading.
        last_success: Unix time of its latest whole reading; None before the first.
    """

    collector: str
    success: bool
    seconds: float | None
    reason: str | None
    timeouts: int
    omitted: int
    last_success: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one scrape found.

    Attributes:
        blocks: The families of every collector that could be read, and the runner's own.
        readings: What the collectors read, by name; collectors that failed are absent.
        reports: How each asked collector fared.
        written: Where those who answer from this snapshot keep what they made of it.
    """

    blocks: tuple[Block, ...]
    readings: Mapping[str, object]
    reports: tuple[Report, ...]
    written: dict[object, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Request:
    names: tuple[str, ...]
    deadline: float
    deliver: Callable[[Snapshot], None]


@dataclass(frozen=True, slots=True)
class _Stop:
    """Ends the runner's thread."""


@dataclass(frozen=True, slots=True)
class _Page:
    """What a collector brought: its reading, named, and what is missing from it."""

    reading: object
    blocks: tuple[Block, ...]
    complaint: str | None
    omitted: int


class _Post:
    """One collector and what the runner knows of it."""

    def __init__(self, collector: Collector[Any]) -> None:
        self.collector = collector
        self.name = collector.name
        self.page: _Page | None = None
        self.turn = 0
        self.finished_at = float("-inf")
        self.started_at: float | None = None
        self.overdue = False
        self.deadline = 0.0
        self.seconds: float | None = None
        self.reason: str | None = None
        self.logged: str | None = None
        self.timeouts = 0
        self.failures = 0
        self.paused_until = float("-inf")
        self.last_success: float | None = None
        self.durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)

    def run(self) -> _Page:
        reading = self.collector.read(self.deadline)
        blocks = self.collector.express(reading)
        complaint = self.collector.complaint(reading)
        return _Page(reading, blocks, complaint, self.collector.omitted(reading))

    def patience(self) -> float:
        if not self.durations:
            return float("inf")
        return max(SHORTEST_PATIENCE_SECONDS, PATIENCE_FACTOR * max(self.durations))

    def is_due(self, now: float) -> bool:
        if self.started_at is not None or now < self.paused_until:
            return False
        return now - self.finished_at > REUSE_SECONDS

    def give_up_at(self) -> float | None:
        """When waiting for the reading under way ends; None when there is nothing to wait for."""
        if self.started_at is None or self.overdue:
            return None
        return self.started_at + self.patience()

    def start(self, now: float, deadline: float) -> None:
        self.started_at = now
        self.deadline = deadline
        self.overdue = False

    def mark_overdue(self, now: float) -> None:
        self.overdue = True
        self.timeouts += 1
        self.page = None
        self.turn += 1
        self.seconds = now - (self.started_at or now)
        self.tell(f"did not answer within {self.seconds:.1f} s and is left alone until it does")

    def finish(self, outcome: Outcome[Any], now: float) -> None:
        was_overdue = self.overdue
        self.started_at = None
        self.overdue = False
        self.durations.append(outcome.seconds)
        if was_overdue:
            return
        self.finished_at = now
        self.turn += 1
        self.seconds = outcome.seconds
        self.page = outcome.value
        if outcome.error is not None:
            self.fail(outcome.error, now)
        elif self.page is not None:
            self.succeed(self.page)

    def fail(self, error: Exception, now: float) -> None:
        self.failures += 1
        if self.failures >= _FAILURES_BEFORE_PAUSE:
            doublings = min(self.failures - _FAILURES_BEFORE_PAUSE, 10)
            self.paused_until = now + min(LONGEST_PAUSE_SECONDS, 0.5 * 2**doublings)
        if isinstance(error, SourceError):
            self.tell(str(error))
        else:
            self.tell(f"failed by a bug: {type(error).__name__}: {error}", error)

    def succeed(self, page: _Page) -> None:
        self.failures = 0
        if page.complaint is None:
            self.last_success = time.time()
        self.tell(page.complaint)

    def tell(self, reason: str | None, error: Exception | None = None) -> None:
        self.reason = reason
        if reason == self.logged:
            return
        self.logged = reason
        if reason is None:
            _log.info("collector %s reads again", self.name, extra={"collector": self.name})
        else:
            _log.warning(
                "collector %s: %s",
                self.name,
                reason,
                extra={"collector": self.name},
                exc_info=error,
            )

    def report(self) -> Report:
        page = self.page
        return Report(
            collector=self.name,
            success=page is not None and page.complaint is None,
            seconds=self.seconds,
            reason=self.reason,
            timeouts=self.timeouts,
            omitted=page.omitted if page is not None else 0,
            last_success=self.last_success,
        )


class Runner:
    """Runs collectors on request.

    Args:
        collectors: All there are; their names differ.
    """

    def __init__(self, collectors: Sequence[Collector[Any]]) -> None:
        self._posts = {collector.name: _Post(collector) for collector in collectors}
        self._events: SimpleQueue[_Request | Outcome[Any] | _Stop] = SimpleQueue()
        self._crew = Crew(name="collector", limit=max(2, len(self._posts)))
        self._pending: list[_Request] = []
        self._help_at = float("inf")
        self._kept: dict[tuple[str, ...], tuple[tuple[int, ...], Snapshot]] = {}
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)
        self._thread.start()

    @property
    def names(self) -> tuple[str, ...]:
        """The collectors there are, in the order of the page."""
        return tuple(self._posts)

    def request(
        self, names: Iterable[str], seconds: float, deliver: Callable[[Snapshot], None]
    ) -> None:
        """Ask for a snapshot.

        Args:
            names: Which collectors.
            seconds: How long it may take.
            deliver: Called with the snapshot on the runner's thread; it must not block.
        """
        self._events.put(_Request(tuple(names), time.monotonic() + seconds, deliver))

    def snapshot(self, names: Iterable[str] | None = None, seconds: float = 5.0) -> Snapshot:
        """Ask for a snapshot and wait for it.

        Args:
            names: Which collectors; all of them when None.
            seconds: How long it may take.
        """
        box: SimpleQueue[Snapshot] = SimpleQueue()
        self.request(self.names if names is None else names, seconds, box.put)
        return box.get()

    def close(self) -> None:
        """Stop; readings that hang are left to end with the process."""
        self._events.put(_Stop())
        self._thread.join()
        self._crew.close()
        for post in self._posts.values():
            if post.started_at is None:
                post.collector.close()

    def _run(self) -> None:
        while True:
            event = self._next_event()
            if isinstance(event, _Stop):
                return
            now = time.monotonic()
            if isinstance(event, _Request):
                self._admit(event, now)
            elif event is not None:
                self._posts[event.key].finish(event, now)
            self._look_after(now)

    def _next_event(self) -> _Request | Outcome[Any] | _Stop | None:
        moments = [request.deadline for request in self._pending]
        if not moments:
            return self._events.get()
        moments.append(self._help_at)
        moments += [moment for post in self._posts.values() if (moment := post.give_up_at())]
        try:
            return self._events.get(timeout=max(0.0, min(moments) - time.monotonic()))
        except Empty:
            return None

    def _admit(self, request: _Request, now: float) -> None:
        self._pending.append(request)
        due = [post for name in request.names if (post := self._posts[name]).is_due(now)]
        for post in due:
            post.start(now, request.deadline)
            self._crew.submit(post.name, post.run, self._events.put)
        if due:
            self._crew.call(_HANDS_AT_START)
            self._help_at = now + HELP_AFTER_SECONDS

    def _look_after(self, now: float) -> None:
        if now >= self._help_at:
            self._crew.call(len(self._posts))
            self._help_at = float("inf")
        for post in self._posts.values():
            moment = post.give_up_at()
            if moment is not None and now >= moment:
                post.mark_overdue(now)
        for request in self._pending[:]:
            if self._is_settled(request) or now >= request.deadline:
                self._pending.remove(request)
                self._answer(request, now)

    def _is_settled(self, request: _Request) -> bool:
        return all(self._posts[name].give_up_at() is None for name in request.names)

    def _answer(self, request: _Request, now: float) -> None:
        posts = [self._posts[name] for name in request.names]
        for post in posts:
            if post.give_up_at() is not None:
                post.mark_overdue(now)
        turns = tuple(post.turn for post in posts)
        kept = self._kept.get(request.names)
        if kept is None or kept[0] != turns:
            if len(self._kept) > 2 * len(self._posts):
                self._kept.clear()
            kept = turns, _assemble(posts)
            self._kept[request.names] = kept
        request.deliver(kept[1])


def _assemble(posts: Sequence[_Post]) -> Snapshot:
    pages = {post.name: post.page for post in posts if post.page is not None}
    reports = tuple(post.report() for post in posts)
    blocks = [block for page in pages.values() for block in page.blocks]
    blocks.append(_express(reports))
    readings = {name: page.reading for name, page in pages.items()}
    return Snapshot(tuple(blocks), readings, reports)


def _express(reports: tuple[Report, ...]) -> Block:
    timed = [report for report in reports if report.seconds is not None]
    whole = [report for report in reports if report.last_success is not None]
    failed = [report for report in reports if report.reason is not None]
    values: list[float] = [1]
    values += [report.success for report in reports]
    values += [report.seconds for report in timed if report.seconds is not None]
    values += [report.last_success for report in whole if report.last_success is not None]
    values += [report.timeouts for report in reports]
    values += [report.omitted for report in reports]
    values += [1] * len(failed)
    shape = (
        "trainvitals",
        tuple(report.collector for report in reports),
        tuple(report.collector for report in timed),
        tuple(report.collector for report in whole),
        tuple((report.collector, report.reason or "") for report in failed),
    )
    return Block(shape, lambda: _describe(*shape[1:]), values)


def _describe(
    names: tuple[str, ...],
    timed: tuple[str, ...],
    whole: tuple[str, ...],
    failed: tuple[tuple[str, str], ...],
) -> tuple[Family, ...]:
    python = ".".join(map(str, sys.version_info[:3]))
    build = (("", (("version", __version__), ("python", python))),)
    reasons = tuple(("", (("collector", name), ("reason", reason))) for name, reason in failed)
    families = (
        Family(
            "trainvitals_build_info",
            "info",
            "Which trainvitals answers, and on which Python. Source: trainvitals.__version__.",
            build,
        ),
        Family(
            "trainvitals_collector_success",
            "gauge",
            "Whether the collector's reading is here and whole. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_duration_seconds",
            "gauge",
            "How long the collector's latest reading took. Source: scrape runner.",
            label_samples("collector", timed),
        ),
        Family(
            "trainvitals_collector_last_success_timestamp_seconds",
            "gauge",
            "When the collector last brought a whole reading, in Unix time. Source: scrape runner.",
            label_samples("collector", whole),
        ),
        Family(
            "trainvitals_collector_timeouts_total",
            "counter",
            "How many of the collector's readings were not waited for. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_omitted_labels",
            "gauge",
            "How many devices, mounts or processes the collector's bounds left out of its latest reading. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_failure_info",
            "info",
            "Why the collector's reading is missing or not whole. Source: scrape runner.",
            reasons,
        ),
    )
    return families if failed else families[:-1]
