"""Running the collectors: apart from each other, timed, and never longer than the scrape may take.

A scrape is a request for some collectors by a deadline. Requests that overlap share one reading,
and a finished reading serves for another `REUSE_SECONDS`. One thread, the runner's, decides;
collectors run on the threads of a crew. A collector that

- raises (on purpose or by a bug) is missing from this scrape, with the reason;
- does not return in time is missing, and is left alone until it returns: what it then brings is
  thrown away, because it may have been read long ago;
- keeps failing is asked less often, and its reason says so.

How long a collector is waited for is learned (`post.py`), and it is at most what the scrape has
left. So a call that hangs for ever costs the scrapes before it is known to hang half a second, and
later ones nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from trainvitals.collectors.collector import Collector
from trainvitals.crew import HELP_AFTER_SECONDS, Crew, Outcome, attempt
from trainvitals.families import Block
from trainvitals.post import Post
from trainvitals.reports import Report, express_reports

REUSE_SECONDS = 0.2
_HANDS_AT_START = 1

_log = logging.getLogger(__name__)


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


class Runner:
    """Runs collectors on request.

    Args:
        collectors: All there are; their names differ.
    """

    def __init__(self, collectors: Sequence[Collector[Any]]) -> None:
        self._posts = {collector.name: Post(collector) for collector in collectors}
        self._events: SimpleQueue[_Request | _Stop | None] = SimpleQueue()
        self._finished: deque[Outcome[Any]] = deque()
        self._crew = Crew(name="collector", limit=max(2, len(self._posts)))
        self._pending: list[_Request] = []
        self._awaited: dict[str, Post] = {}
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
        events: list[_Request | _Stop | None] = []
        timeout = None if until == float("inf") else max(0.0, until - time.monotonic())
        with suppress(Empty):
            events.append(self._events.get(timeout=timeout))
            while True:
                events.append(self._events.get_nowait())
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
        due = [
            post for name in request.names if (post := self._posts[name]).is_due(now, REUSE_SECONDS)
        ]
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
            self._crew.call(1)
            self._help_at = now + HELP_AFTER_SECONDS if again else float("inf")
        if not self._awaited and not self._crew.is_behind:
            self._help_at = float("inf")
        for request in self._pending[:]:
            if now >= request.deadline or self._awaited.keys().isdisjoint(request.names):
                self._pending.remove(request)
                self._answer(request, now)

    def _give_up(self, post: Post, now: float) -> None:
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

    def _assemble(self, names: tuple[str, ...], late: AbstractSet[str], now: float) -> Snapshot:
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


def _assemble(posts: Sequence[Post], late: AbstractSet[str], now: float) -> Snapshot:
    pages = {
        post.name: post.page for post in posts if post.page is not None and post.name not in late
    }
    reports = tuple([post.report(now, is_late=post.name in late) for post in posts])
    blocks = [block for page in pages.values() for block in page.blocks]
    blocks.append(express_reports(reports))
    readings = {name: page.reading for name, page in pages.items()}
    return Snapshot(tuple(blocks), readings, reports)
