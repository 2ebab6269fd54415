"""Running the collectors: apart from each other, timed, and never longer than the scrape may take.

A scrape is a request for some collectors by a deadline. Requests that overlap share one reading,
and a finished reading serves for another `REUSE_SECONDS`. One thread, the runner's, decides;
collectors run on the threads of a crew. A collector that

- raises (on purpose or by a bug) is missing from this scrape, with the reason;
- does not return in time is missing, and is left alone until it returns: what it then brings is
  thrown away, because it may have been read long ago;
- keeps failing is asked less often, at most `LONGEST_PAUSE_SECONDS` apart, and its reason says so.

How long a collector is waited for is learned: `PATIENCE_FACTOR` times the longest of its last
readings, at least `SHORTEST_PATIENCE_SECONDS`, at most what the scrape has left. So a call that
hangs for ever costs the scrapes before it is known to hang half a second, and later ones nothing.
A reading that took longer than its scrape had teaches nothing: waiting would not have helped.

A reason is a label, so it is the same words every time; what differs stands in the log.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from trainvitals import __version__
from trainvitals.collectors.collector import Collector
from trainvitals.crew import HELP_AFTER_SECONDS, Crew, Outcome, attempt
from trainvitals.errors import SourceError
from trainvitals.families import Block, Family, label_samples

REUSE_SECONDS = 0.2
PATIENCE_FACTOR = 25.0
SHORTEST_PATIENCE_SECONDS = 0.4
LONGEST_PAUSE_SECONDS = 8.0
_FAILURES_BEFORE_PAUSE = 3
_REMEMBERED_DURATIONS = 8
_KEPT_SHAPES = 64
_SHORTEST_PAUSE_SECONDS = 0.5
_LATE = "did not answer in time"
_LEFT_ALONE = "did not answer in time and is left alone until it does"
_ASKED_LESS_OFTEN = "; asked less often until it succeeds"
_HANDS_AT_START = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """How one collector fared in a scrape.

    Attributes:
        collector: Its name.
        success: Its reading is here and whole.
        answered: It has returned at least once since the start, if only to fail.
        seconds: How long the latest reading took; for one that was late, how long it was waited
            for; None before the first.
        reason: Why it did not succeed; None when it did.
        failures: How many of its readings raised since the exporter started.
        timeouts: How many of its readings were late since then.
        omitted: How many label values its bounds left out of the latest reading.
        last_success: Unix time of its latest whole reading; None before the first.
    """

    collector: str
    success: bool
    answered: bool
    seconds: float | None
    reason: str | None
    failures: int
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
        self.started_at: float | None = None
        self.ended_at = float("-inf")
        self.deadline = 0.0
        self.give_up_at: float | None = None
        self.answered = False
        self.seconds: float | None = None
        self.reason: str | None = None
        self.logged: str | None = None
        self.timeouts = 0
        self.failures = 0
        self.failures_in_a_row = 0
        self.paused_until = float("-inf")
        self.last_success: float | None = None
        self.durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)
        self.sizes: dict[Hashable, int] = {}

    def run(self) -> _Page:
        reading = self.collector.read(self.deadline)
        blocks = self.collector.express(reading)
        for block in blocks:
            self.check(block)
        complaint = self.collector.complaint(reading)
        return _Page(reading, blocks, complaint, self.collector.omitted(reading))

    def check(self, block: Block) -> None:
        """Find now, while it costs this collector alone, what could not be written later."""
        size = self.sizes.get(block.shape)
        if size is None:
            if len(self.sizes) >= _KEPT_SHAPES:
                self.sizes.clear()
            size = sum(len(family.samples) for family in block.describe())
            self.sizes[block.shape] = size
        if len(block.values) != size:
            raise ValueError(f"{size} samples but {len(block.values)} values")
        sum(block.values)  # TypeError for what is no number

    def patience(self) -> float:
        if not self.durations:
            return float("inf")
        return max(SHORTEST_PATIENCE_SECONDS, PATIENCE_FACTOR * max(self.durations))

    def is_due(self, now: float) -> bool:
        if self.started_at is not None or now < self.paused_until:
            return False
        return now - self.ended_at > REUSE_SECONDS

    def start(self, now: float, deadline: float) -> None:
        self.started_at = now
        self.deadline = deadline
        self.give_up_at = now + self.patience()

    def give_up(self, now: float) -> None:
        """Leave the reading under way alone: it is no longer waited for."""
        self.give_up_at = None
        self.timeouts += 1
        self.page = None
        self.turn += 1
        self.seconds = self.waited(now)
        self.tell(_LEFT_ALONE, f"did not answer within {self.seconds:.1f} s; it is left alone")

    def finish(self, outcome: Outcome[Any]) -> None:
        was_late = self.give_up_at is None
        is_hopeless = was_late and outcome.ended_at > self.deadline
        self.started_at = self.give_up_at = None
        self.answered = True
        if not is_hopeless:
            self.durations.append(outcome.seconds)
        if was_late:
            return
        self.ended_at = outcome.ended_at
        self.turn += 1
        self.seconds = outcome.seconds
        self.page = outcome.value
        if outcome.error is not None:
            self.fail(outcome.error)
        elif self.page is not None:
            self.succeed(self.page)

    def fail(self, error: Exception) -> None:
        self.failures += 1
        self.failures_in_a_row += 1
        if isinstance(error, SourceError):
            self.tell(str(error), str(error))
        else:
            kind = type(error).__name__
            self.tell(
                f"failed by a bug ({kind}); see the log", f"failed by a bug: {error!r}", error
            )
        doublings = self.failures_in_a_row - _FAILURES_BEFORE_PAUSE
        if doublings == 0:
            _log.warning(
                "collector %s failed %d times in a row and is asked less often",
                self.name,
                self.failures_in_a_row,
                extra={"collector": self.name},
            )
        if doublings >= 0:
            pause = min(LONGEST_PAUSE_SECONDS, _SHORTEST_PAUSE_SECONDS * 2 ** min(doublings, 10))
            self.paused_until = self.ended_at + pause
            self.reason = f"{self.reason}{_ASKED_LESS_OFTEN}"

    def succeed(self, page: _Page) -> None:
        self.failures_in_a_row = 0
        if page.complaint is None:
            self.last_success = time.time()
        self.tell(page.complaint, page.complaint or "reads again")

    def tell(self, reason: str | None, words: str, error: Exception | None = None) -> None:
        """Keep the reason, and log it in other words if it is another one than before."""
        self.reason = reason
        if reason == self.logged:
            return
        self.logged = reason
        _log.log(
            logging.INFO if reason is None else logging.WARNING,
            "collector %s: %s",
            self.name,
            words,
            extra={"collector": self.name},
            exc_info=error,
        )

    def waited(self, now: float) -> float:
        return now - (self.started_at if self.started_at is not None else now)

    def report(self, now: float, *, is_late: bool) -> Report:
        page = None if is_late else self.page
        return Report(
            collector=self.name,
            success=page is not None and page.complaint is None,
            answered=self.answered,
            seconds=self.waited(now) if is_late else self.seconds,
            reason=_LATE if is_late else self.reason,
            failures=self.failures,
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
        self._events: SimpleQueue[_Request | _Stop | None] = SimpleQueue()
        self._finished: deque[Outcome[Any]] = deque()
        self._crew = Crew(name="collector", limit=max(2, len(self._posts)))
        self._pending: list[_Request] = []
        self._awaited: dict[str, _Post] = {}
        self._help_at = float("inf")
        self._kept: dict[tuple[str, ...], tuple[tuple[int, ...], Snapshot]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._logged: str | None = None
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
            deliver: Called with the snapshot on the runner's thread; it must not block. What it
                raises is logged.

        Raises:
            ValueError: There is no such collector.
            RuntimeError: The runner was closed, or made by a process that this one is a fork of.
        """
        chosen = tuple(dict.fromkeys(names))
        for name in chosen:
            if name not in self._posts:
                raise ValueError(f"no collector {name!r}; there are {', '.join(self._posts)}")
        request = _Request(chosen, time.monotonic() + seconds, deliver)
        with self._lock:
            if self._closed or not self._thread.is_alive():
                raise RuntimeError("nobody reads here: closed, or made before a fork; make another")
            self._events.put(request)

    def snapshot(self, names: Iterable[str] | None = None, seconds: float = 5.0) -> Snapshot:
        """Ask for a snapshot and wait for it.

        Args:
            names: Which collectors; all of them when None.
            seconds: How long it may take.

        Raises:
            ValueError: There is no such collector.
            RuntimeError: The runner was closed, or made by a process that this one is a fork of.
        """
        box: SimpleQueue[Snapshot] = SimpleQueue()
        self.request(self.names if names is None else names, seconds, box.put)
        return box.get()

    def close(self) -> None:
        """Answer at once who still waits, and stop; what hangs is left to end with the process."""
        with self._lock:
            is_first, self._closed = not self._closed, True
        if not is_first:
            return
        self._events.put(_Stop())
        self._thread.join()
        self._crew.close()
        for post in self._posts.values():
            if not self._crew.is_running(post.name):
                post.collector.close()

    def _run(self) -> None:
        while True:
            events = self._take_events()
            now = time.monotonic()
            count = self._take_finished()
            for event in events:
                if isinstance(event, _Request):
                    self._admit(event, now)
                elif isinstance(event, _Stop):
                    self._answer_all(now)
                    return
            self._look_after(now, count)

    def _take_events(self) -> list[_Request | _Stop | None]:
        """Wait for an event or for the nearest moment, and give all that have come."""
        until = self._nearest_moment()
        try:
            if until == float("inf"):
                events = [self._events.get()]
            else:
                events = [self._events.get(timeout=max(0.0, until - time.monotonic()))]
            while True:
                events.append(self._events.get_nowait())
        except Empty:
            return events

    def _nearest_moment(self) -> float:
        moments = [self._help_at, *(request.deadline for request in self._pending)]
        moments += [post.give_up_at for post in self._awaited.values() if post.give_up_at]
        return min(moments)

    def _take_finished(self) -> int:
        """Take up the outcomes that have come, and count them."""
        count = len(self._finished)
        for _ in range(count):
            outcome = self._finished.popleft()
            self._awaited.pop(outcome.key, None)
            self._posts[outcome.key].finish(outcome)
        return count

    def _receive(self, outcome: Outcome[Any], more: bool) -> None:  # noqa: FBT001 - as `Deliver` has it
        self._finished.append(outcome)
        if not more:
            self._events.put(None)

    def _admit(self, request: _Request, now: float) -> None:
        self._pending.append(request)
        due = [post for name in request.names if (post := self._posts[name]).is_due(now)]
        for post in due:
            post.start(now, request.deadline)
            self._awaited[post.name] = post
            self._crew.submit(post.name, post.run, self._receive)
        if due:
            self._crew.call(_HANDS_AT_START)
            self._help_at = min(self._help_at, now + HELP_AFTER_SECONDS)

    def _look_after(self, now: float, count: int) -> None:
        for post in list(self._awaited.values()):
            if post.give_up_at is not None and now >= post.give_up_at:
                self._give_up(post, now)
        if now >= self._help_at:
            # Outcomes that nobody was woken for: there may be more of them.
            again = count > 0 or self._crew.is_behind
            self._crew.call(len(self._posts))
            self._help_at = now + HELP_AFTER_SECONDS if again else float("inf")
        if not self._awaited and not self._crew.is_behind:
            self._help_at = float("inf")
        for request in self._pending[:]:
            if now >= request.deadline or self._awaited.keys().isdisjoint(request.names):
                self._pending.remove(request)
                self._answer(request, now)

    def _give_up(self, post: _Post, now: float) -> None:
        del self._awaited[post.name]
        post.give_up(now)

    def _answer_all(self, now: float) -> None:
        while self._pending:
            self._answer(self._pending.pop(), now)

    def _answer(self, request: _Request, now: float) -> None:
        late = self._awaited.keys() & set(request.names)
        if late:
            # Others may have more time, and get the reading.
            for name in late - {name for other in self._pending for name in other.names}:
                self._give_up(self._awaited[name], now)
            late &= self._awaited.keys()
        snapshot = self._assemble(request.names, late, now)
        outcome = attempt("answer", partial(request.deliver, snapshot))
        if outcome.error is not None and repr(outcome.error) != self._logged:
            self._logged = repr(outcome.error)
            _log.error("a snapshot could not be delivered", exc_info=outcome.error)

    def _assemble(self, names: tuple[str, ...], late: Set[str], now: float) -> Snapshot:
        """Give the snapshot of these collectors; while none of them has news, the same one."""
        posts = [self._posts[name] for name in names]
        if late:
            return _assemble(posts, late, now)
        turns = tuple([post.turn for post in posts])
        kept = self._kept.get(names)
        if kept is None or kept[0] != turns:
            if len(self._kept) > 2 * len(self._posts):
                self._kept.clear()
            kept = self._kept[names] = turns, _assemble(posts, late, now)
        return kept[1]


def _assemble(posts: Sequence[_Post], late: Set[str], now: float) -> Snapshot:
    pages = {
        post.name: post.page for post in posts if post.page is not None and post.name not in late
    }
    reports = tuple([post.report(now, is_late=post.name in late) for post in posts])
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
    values += [report.failures for report in reports]
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
            "Which trainvitals this is. Source: trainvitals.__version__.",
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
            "How long its latest reading took. Source: scrape runner.",
            label_samples("collector", timed),
        ),
        Family(
            "trainvitals_collector_last_success_timestamp_seconds",
            "gauge",
            "When it last brought a whole reading. Source: scrape runner.",
            label_samples("collector", whole),
        ),
        Family(
            "trainvitals_collector_failures_total",
            "counter",
            "How many of the collector's readings failed. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_timeouts_total",
            "counter",
            "Readings that were not waited for. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_omitted_labels",
            "gauge",
            "What its bounds left out. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_failure_info",
            "info",
            "Why its reading is not whole. Source: scrape runner.",
            reasons,
        ),
    )
    return families if failed else families[:-1]
