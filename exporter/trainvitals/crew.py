"""Lasting worker threads for work that may hang.

A driver call or a `statvfs` on a dead mount cannot be cancelled, only left alone. So work is
handed to a crew: its threads last, none is started per task, and a thread whose task hangs is
simply missing until the task returns. While it hangs, the same task is not started again.

Quick work is done by few hands: the first workers take one task after the other. Only when that
takes longer than `HELP_AFTER_SECONDS` do more workers come, up to one for each task, so that
tasks behind a slow one never wait for it, and quick tasks cost no thread switches.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

HELP_AFTER_SECONDS = 0.002

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
    """

    __slots__ = ("error", "key", "late", "seconds", "value")

    def __init__(
        self,
        key: str,
        value: Result | None = None,
        error: Exception | None = None,
        *,
        late: bool = False,
        seconds: float = 0.0,
    ) -> None:
        self.key = key
        self.value = value
        self.error = error
        self.late = late
        self.seconds = seconds


class _Job:
    __slots__ = ("deliver", "key", "task")

    def __init__(
        self, key: str, task: Callable[[], object], deliver: Callable[[Outcome[object]], None]
    ) -> None:
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

    def is_running(self, key: str) -> bool:
        """Tell whether the task of that key was submitted and has not ended."""
        return key in self._running

    def submit(
        self, key: str, task: Callable[[], object], deliver: Callable[[Outcome[object]], None]
    ) -> None:
        """Put a task into the backlog; `call` a worker to have it done.

        Args:
            key: Names the task; it must not be running.
            task: The work; what it raises becomes the outcome's error.
            deliver: Called with the outcome, on the worker's thread.
        """
        self._running.add(key)
        self._backlog.append(_Job(key, task, deliver))

    def call(self, hands: int) -> None:
        """Have up to so many more workers look at the backlog."""
        for _ in range(min(hands, len(self._backlog))):
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                elif self._threads < self._limit:
                    self._threads += 1
                    self._start_worker()
                else:
                    return
            self._bell.put(item=True)

    def gather(
        self, tasks: Mapping[str, Callable[[], Result]], patience: float
    ) -> dict[str, Outcome[Result]]:
        """Do all tasks and wait for them, but not longer than the patience.

        Args:
            tasks: What to do, by key.
            patience: Seconds to wait for all of them together.

        Returns:
            An outcome for each key. A task that is late now, or still runs from an earlier
            gathering, has `late` set; the latter is not started again.
        """
        finished: SimpleQueue[Outcome[Result]] = SimpleQueue()
        started_at = time.monotonic()
        due = [key for key in tasks if key not in self._running]
        for key in due:
            self.submit(key, tasks[key], finished.put)  # type: ignore[arg-type]  # deliver is contravariant
        self.call(1)
        outcomes: dict[str, Outcome[Result]] = {}
        self._await(finished, outcomes, len(due), started_at + patience)
        waited = time.monotonic() - started_at
        for key in tasks:
            if key not in outcomes:
                outcomes[key] = Outcome(key, late=True, seconds=waited)
        return outcomes

    def close(self) -> None:
        """Let the idle workers go; those that hang end with the process."""
        with self._lock:
            for _ in range(self._threads):
                self._bell.put(item=False)

    def _await(
        self,
        finished: SimpleQueue[Outcome[Result]],
        outcomes: dict[str, Outcome[Result]],
        expected: int,
        until: float,
    ) -> None:
        help_at = time.monotonic() + HELP_AFTER_SECONDS
        while len(outcomes) < expected:
            now = time.monotonic()
            if now >= until:
                return
            if now >= help_at:
                self.call(len(self._backlog))
                help_at = until
            try:
                outcome = finished.get(timeout=min(until, help_at) - now)
            except (Empty, ValueError):  # ValueError: the moment passed while we looked at it
                continue
            outcomes[outcome.key] = outcome

    def _start_worker(self) -> None:
        threading.Thread(
            target=self._work, name=f"{self._name}-{self._threads}", daemon=True
        ).start()

    def _work(self) -> None:
        while self._bell.get():
            while self._backlog:
                try:
                    job = self._backlog.popleft()
                except IndexError:  # another worker was quicker
                    break
                self._do(job)
            with self._lock:
                self._idle += 1

    def _do(self, job: _Job) -> None:
        started_at = time.monotonic()
        error: Exception | None = None
        value: object = None
        try:
            value = job.task()
        except Exception as raised:  # noqa: BLE001 - the scrape runner's one broad except
            error = raised
        seconds = time.monotonic() - started_at
        self._running.discard(job.key)
        job.deliver(Outcome(job.key, value, error, late=False, seconds=seconds))
