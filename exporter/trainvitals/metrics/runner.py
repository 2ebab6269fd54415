"""The runner, which runs collectors independently of each other, within a scrape's deadline.

A scrape is a request for the readings of one or more collectors, with a deadline. Requests that
overlap share a reading, and a finished reading is reused for `REUSE_SECONDS`. The runner's thread
schedules the readings, and the collectors run in a worker pool.

- If a collector raises an exception, even because of a bug, the collector's metrics are missing
  from this scrape, and the reason is reported.
- If a collector does not return in time, the collector's metrics are missing from this scrape, and
  the collector is not called again until the call has returned. The late result is dropped, because
  it may be outdated.
- If a collector fails repeatedly, the collector is read less often until it succeeds, and the
  reported reason states this.

Each collector's timeout is derived from the durations of its past readings (see
`collector_state.py`) and never exceeds the deadline. A call that hangs delays one scrape by at most
this timeout, usually less than half a second, and does not delay later scrapes.
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

from trainvitals.metrics.collector_metrics import Report, express_reports
from trainvitals.metrics.collector_state import CollectorState
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.families import Block
from trainvitals.workers import HELP_AFTER_SECONDS, Outcome, WorkerPool, attempt

REUSE_SECONDS = 0.2
_WORKERS_AT_START = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of one scrape.

    Attributes:
        blocks: The metric families of every collector that could be read, and the metric families
            about the collectors.
        readings: The readings by collector name; a collector that failed has no reading.
        reports: The outcome of each collector that was requested.
        written: A cache of rendered pages, shared by the callers that receive this snapshot.
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
    """An event that makes the runner's thread end."""


class Runner:
    """The runner, which runs collectors on request and delivers snapshots.

    Args:
        collectors: All collectors of the machine, with distinct names.
    """

    def __init__(self, collectors: Sequence[Collector[Any]]) -> None:
        self._states = {collector.name: CollectorState(collector) for collector in collectors}
        self._events: SimpleQueue[_Request | _Stop | None] = SimpleQueue()
        self._finished: deque[Outcome[Any]] = deque()
        self._pool = WorkerPool(name="collector", limit=max(2, len(self._states)))
        self._pending: list[_Request] = []
        self._awaited: dict[str, CollectorState] = {}
        self._help_at = float("inf")
        self._kept: dict[tuple[str, ...], tuple[tuple[int, ...], Snapshot]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._logged: str | None = None
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)
        self._thread.start()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all collectors, in the order of the metrics page."""
        return tuple(self._states)

    def request(
        self, names: Iterable[str], seconds: float, deliver: Callable[[Snapshot], None]
    ) -> None:
        """Request a snapshot of collectors; pass the finished snapshot to `deliver`.

        Args:
            names: The names of the collectors to read.
            seconds: The time within which the snapshot is delivered, in seconds.
            deliver: A function that is called with the snapshot in the runner's thread; the
                function must not block, and its exceptions are logged.

        Raises:
            ValueError: One of the names is not the name of a collector.
            RuntimeError: The runner was closed, or was created before this process was forked.
        """
        chosen = tuple(dict.fromkeys(names))
        for name in chosen:
            if name not in self._states:
                raise ValueError(f"no collector {name!r}; there are {', '.join(self._states)}")
        request = _Request(chosen, time.monotonic() + seconds, deliver)
        with self._lock:
            if self._closed or not self._thread.is_alive():
                raise RuntimeError(
                    "the runner was closed, or created before a fork: create another"
                )
            self._events.put(request)

    def snapshot(self, names: Iterable[str] | None = None, seconds: float = 5.0) -> Snapshot:
        """Request a snapshot of collectors, wait until it is finished, and return it.

        Args:
            names: The names of the collectors to read; None for all collectors.
            seconds: The time within which the snapshot is returned, in seconds.

        Raises:
            ValueError: One of the names is not the name of a collector.
            RuntimeError: The runner was closed, or was created before this process was forked.
        """
        box: SimpleQueue[Snapshot] = SimpleQueue()
        self.request(self.names if names is None else names, seconds, box.put)
        return box.get()

    def close(self) -> None:
        """Answer all pending requests immediately, and stop the runner.

        A call of a collector that hangs ends only when the process ends.
        """
        with self._lock:
            is_first, self._closed = not self._closed, True
        if not is_first:
            return
        self._events.put(_Stop())
        self._thread.join()
        self._pool.close()
        for state in self._states.values():
            if not self._pool.is_running(state.name):
                state.collector.close()

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
        """Wait for an event or for the nearest deadline, then return all pending events."""
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
        moments += [state.give_up_at for state in self._awaited.values() if state.give_up_at]
        return min(moments)

    def _take_finished(self) -> int:
        """Record the outcomes that collectors have delivered, and return their number."""
        count = len(self._finished)
        for _ in range(count):
            outcome = self._finished.popleft()
            self._awaited.pop(outcome.key, None)
            self._states[outcome.key].finish(outcome)
        return count

    def _receive(self, outcome: Outcome[Any], more: bool) -> None:  # noqa: FBT001 - as in `Deliver`
        self._finished.append(outcome)
        if not more:
            self._events.put(None)

    def _admit(self, request: _Request, now: float) -> None:
        self._pending.append(request)
        due = [
            state
            for name in request.names
            if (state := self._states[name]).is_due(now, REUSE_SECONDS)
        ]
        for state in due:
            state.start(now, request.deadline)
            self._awaited[state.name] = state
            self._pool.submit(state.name, state.run, self._receive)
        if due:
            self._pool.wake(_WORKERS_AT_START)
            self._help_at = min(self._help_at, now + HELP_AFTER_SECONDS)

    def _look_after(self, now: float, count: int) -> None:
        for state in list(self._awaited.values()):
            if state.give_up_at is not None and now >= state.give_up_at:
                self._give_up(state, now)
        if now >= self._help_at:
            # Outcomes have arrived without an event, so more outcomes may follow.
            again = count > 0 or self._pool.is_behind
            self._pool.wake(1)
            self._help_at = now + HELP_AFTER_SECONDS if again else float("inf")
        if not self._awaited and not self._pool.is_behind:
            self._help_at = float("inf")
        for request in self._pending[:]:
            if now >= request.deadline or self._awaited.keys().isdisjoint(request.names):
                self._pending.remove(request)
                self._answer(request, now)

    def _give_up(self, state: CollectorState, now: float) -> None:
        del self._awaited[state.name]
        state.give_up(now)

    def _answer_all(self, now: float) -> None:
        while self._pending:
            self._answer(self._pending.pop(), now)

    def _answer(self, request: _Request, now: float) -> None:
        late = self._awaited.keys() & set(request.names)
        if late:
            # Requests with a later deadline may still receive the reading.
            for name in late - {name for other in self._pending for name in other.names}:
                self._give_up(self._awaited[name], now)
            late &= self._awaited.keys()
        snapshot = self._assemble(request.names, late, now)
        outcome = attempt("answer", partial(request.deliver, snapshot))
        if outcome.error is not None and repr(outcome.error) != self._logged:
            self._logged = repr(outcome.error)
            _log.error("a snapshot could not be delivered", exc_info=outcome.error)

    def _assemble(self, names: tuple[str, ...], late: AbstractSet[str], now: float) -> Snapshot:
        """Return a snapshot of collectors, or the previous snapshot if no result is new."""
        states = [self._states[name] for name in names]
        if late:
            return _assemble(states, late, now)
        turns = tuple([state.turn for state in states])
        kept = self._kept.get(names)
        if kept is None or kept[0] != turns:
            self._forget_old()
            kept = self._kept[names] = turns, _assemble(states, late, now)
        return kept[1]

    def _forget_old(self) -> None:
        """Drop outdated snapshots, which would keep readings and rendered pages in memory."""
        for names, (turns, _) in list(self._kept.items()):
            is_old = turns != tuple([self._states[name].turn for name in names])
            if is_old or len(self._kept) > 2 * len(self._states):
                del self._kept[names]


def _assemble(states: Sequence[CollectorState], late: AbstractSet[str], now: float) -> Snapshot:
    results = {
        state.name: state.result
        for state in states
        if state.result is not None and state.name not in late
    }
    reports = tuple([state.report(now, is_late=state.name in late) for state in states])
    blocks = [block for result in results.values() for block in result.blocks]
    blocks.append(express_reports(reports))
    readings = {name: result.reading for name, result in results.items()}
    return Snapshot(tuple(blocks), readings, reports)
