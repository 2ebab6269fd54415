"""Lasting worker threads for work that may hang.

A driver call or a `statvfs` on a dead mount cannot be cancelled, only left alone. So work is
handed to a crew: its threads last, none is started per task, and a thread whose task hangs is
simply missing until the task returns. While it hangs, the same task is not started again.

Quick work is done by few hands: the first workers take one task after the other. Only when that
takes longer than `HELP_AFTER_SECONDS` does another worker come, and then twice as many each time
as the time before, up to one for each task. So tasks behind a slow one wait for it a moment at
most, and quick tasks cost neither thread switches nor threads. For the same
reason outcomes are gathered: who waits for them is woken when a worker runs out of tasks, and
looks by itself once in a while as long as workers go from task to task.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

HELP_AFTER_SECONDS = 0.01
MORE_HELP_AFTER_SECONDS = 0.005

Result = TypeVar("Result")


class Outcome(Generic[Result]):
    """How a task ended, or that it has not.

    A class written out, like all that the driver readers' processes import: `dataclasses` would
    cost each of them 1.3 MiB.

    Attributes:
        key: Which task.
        value: What it returned; None when it raised or is late.
        error: What it raised; None when it returned or is late.
        late: It had not finished when the patience was over; it goes on by itself.
        seconds: How long it ran; for a late task, how long it was waited for.
        ended_at: When it ended or, for a late task, the waiting, by `time.monotonic`.
    """

    __slots__ = ("ended_at", "error", "key", "late", "seconds", "value")

    def __init__(
        self,
        key: str,
        value: Result | None = None,
        error: Exception | None = None,
        *,
        late: bool = False,
        seconds: float = 0.0,
        ended_at: float = 0.0,
    ) -> None:
        self.key = key
        self.value = value
        self.error = error
        self.late = late
        self.seconds = seconds
        self.ended_at = ended_at


# Takes an outcome on the worker's thread; told that more come, because the worker goes on with
# another task at once, it need not wake anybody.
Deliver = Callable[[Outcome[Any], bool], None]


def attempt(key: str, task: Callable[[], Result]) -> Outcome[Result]:
    """Do a task of somebody else's making and give its outcome, whatever it raises."""
    started_at = time.monotonic()
    value = error = None
    try:
        value = task()
    except Exception as raised:  # noqa: BLE001 - the scrape runner's one broad except
        error = raised
    ended_at = time.monotonic()
    return Outcome(key, value, error, seconds=ended_at - started_at, ended_at=ended_at)


class _Job:
    __slots__ = ("deliver", "key", "task")

    def __init__(self, key: str, task: Callable[[], object], deliver: Deliver) -> None:
        self.key = key
        self.task = task
        self.deliver = deliver


class Crew:
    """Workers that share a backlog.

    Args:
        name: Stem of the threads' names.
        limit: The most threads there will ever be.
    """

    def __init__(self, *, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._backlog: deque[_Job] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._running: set[str] = set()

    @property
    def is_behind(self) -> bool:
        """Whether a task waits for a worker."""
        return bool(self._backlog)

    def is_running(self, key: str) -> bool:
        """Tell whether the task of that key was submitted and has not ended."""
        return key in self._running

    def submit(self, key: str, task: Callable[[], object], deliver: Deliver) -> None:
        """Put a task into the backlog; `call` a worker to have it done.

        Args:
            key: Names the task; it must not be running.
            task: The work; what it raises becomes the outcome's error.
            deliver: Takes the outcome.
        """
        self._running.add(key)
        self._backlog.append(_Job(key, task, deliver))

    def call(self, hands: int) -> None:
        """Have up to so many more workers look at the backlog."""
        for _ in range(min(hands, len(self._backlog))):
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                elif self._threads >= self._limit or not self._start_worker():
                    return
            self._bell.put(item=True)

    def gather(
        self,
        tasks: Mapping[str, Callable[[], Result]],
        patience: float,
        *,
        turn: float | None = None,
    ) -> dict[str, Outcome[Result]]:
        """Do all tasks and wait for them, but not longer than the patience.

        Args:
            tasks: What to do, by key.
            patience: Seconds to wait for all of them together.
            turn: For tasks that only slow each other down: how many seconds one has to itself
                before the next is begun beside it. None: as many at once as it takes.

        Returns:
            An outcome for each key. A task that is late now, or still runs from an earlier
            gathering, has `late` set; the latter is not started again.
        """
        tray = _Tray()
        started_at = time.monotonic()
        due = [key for key in tasks if key not in self._running]
        for key in due:
            self.submit(key, tasks[key], tray.put)
        self.call(1)
        outcomes: dict[str, Outcome[Result]] = {}
        self._await(tray, outcomes, len(due), started_at + patience, turn)
        now = time.monotonic()
        for key in tasks:
            if key not in outcomes:
                outcomes[key] = Outcome(key, late=True, seconds=now - started_at, ended_at=now)
        return outcomes

    def close(self) -> None:
        """Let the idle workers go; those that hang end with the process."""
        with self._lock:
            for _ in range(self._threads):
                self._bell.put(item=False)

    def _await(
        self,
        tray: _Tray,
        outcomes: dict[str, Outcome[Result]],
        expected: int,
        until: float,
        turn: float | None,
    ) -> None:
        now = time.monotonic()
        help_after = HELP_AFTER_SECONDS if turn is None else turn
        help_at = now + help_after
        hands = 1
        while len(outcomes) < expected and now < until:
            found = tray.take(min(until, help_at) - now)
            outcomes.update((outcome.key, outcome) for outcome in found)
            now = time.monotonic()
            if now >= help_at:
                # Outcomes that nobody was woken for: there may be more of them.
                again = MORE_HELP_AFTER_SECONDS if turn is None else turn
                help_at = now + again if found or self.is_behind else until
                if turn is None:
                    self.call(hands)
                    hands *= 2
                elif not found:
                    self.call(1)

    def _start_worker(self) -> bool:
        thread = threading.Thread(
            target=self._work, name=f"{self._name}-{self._threads + 1}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left; those there are go on
            return False
        self._threads += 1
        return True

    def _work(self) -> None:
        while self._bell.get():
            while self._has_more():
                try:
                    job = self._backlog.popleft()
                except IndexError:  # another worker was quicker
                    continue
                self._do(job)

    def _has_more(self) -> bool:
        """Tell whether there is work left; else be idle, so that whoever brings some calls."""
        with self._lock:
            if not self._backlog:
                self._idle += 1
                return False
            return True

    def _do(self, job: _Job) -> None:
        outcome = attempt(job.key, job.task)
        self._running.discard(job.key)
        job.deliver(outcome, self.is_behind)


class _Tray:
    """Outcomes on their way from the workers to the one who waits for them."""

    __slots__ = ("_bell", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: deque[Outcome[Any]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()

    def put(self, outcome: Outcome[Any], more: bool) -> None:  # noqa: FBT001 - as `Deliver` has it
        self._outcomes.append(outcome)
        if not more:
            self._bell.put(None)

    def take(self, timeout: float) -> list[Outcome[Any]]:
        """Wait until somebody wakes us or the time is over, and give all that have come."""
        with suppress(Empty):
            self._bell.get(timeout=max(0.0, timeout))
        return [self._outcomes.popleft() for _ in range(len(self._outcomes))]
