"""Make delayed calls on one thread, and calls that may block on a pool of threads.

Because of the pool, a slow engine delays neither the processing of its events nor the delayed
calls.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

from trainvitals.workers import Outcome, Result, WorkerPool, attempt

_log = logging.getLogger(__name__)
_JOIN_SECONDS = 1.0


def report_failure(outcome: Outcome[Result], more: bool = False) -> None:  # noqa: ARG001, FBT001, FBT002 - as `workers.Deliver` has it
    """Log an error that a task raised, which indicates a bug."""
    if outcome.error is not None:
        _log.error("%s failed: %s", outcome.key, outcome.error, exc_info=outcome.error)


class Schedule:
    """Makes short calls at scheduled times; a `TaskQueue` makes the calls that may block.

    Args:
        name: The name of the thread that makes the calls.
    """

    def __init__(self, *, name: str) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._condition = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which also makes the calls that were scheduled before the start."""
        self._thread.start()

    def call_after(self, seconds: float, task: Callable[[], object]) -> None:
        """Call a function once, on the schedule's thread, after a delay in seconds."""
        with self._condition:
            if not self._is_closing:
                heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), task))
                self._condition.notify()

    def repeat(self, seconds: float, task: Callable[[], object]) -> None:
        """Call a function immediately, and again the given number of seconds after each call."""

        def turn() -> None:
            try:
                task()
            finally:
                self.call_after(seconds, turn)

        self.call_after(0.0, turn)

    def close(self) -> None:
        """Stop the schedule's thread, and cancel pending calls."""
        with self._condition:
            self._is_closing = True
            self._due.clear()
            self._condition.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while (task := self._await_next()) is not None:
            report_failure(attempt("a scheduled call", task))

    def _await_next(self) -> Callable[[], object] | None:
        with self._condition:
            while not self._is_closing:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._condition.wait(wait)
            return None


_WORKERS = 4


class TaskQueue:
    """Runs tasks that may block; any thread may submit tasks.

    Args:
        schedule: The schedule that starts delayed tasks.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._pool = WorkerPool(name="container", limit=_WORKERS)
        self._numbers = itertools.count()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the queue is closed and starts no further tasks."""
        return self._is_closed

    def do(self, task: Callable[[], object]) -> None:
        """Run a task as soon as a worker thread is free."""
        if not self._is_closed:
            self._pool.submit(str(next(self._numbers)), lambda: self._do(task), report_failure)
            self._pool.wake(1)

    def do_after(self, seconds: float, task: Callable[[], object]) -> None:
        """Run a task on a worker thread after a delay in seconds."""
        self._schedule.call_after(seconds, lambda: self.do(task))

    def close(self) -> None:
        """Stop starting tasks; running tasks are not interrupted."""
        self._is_closed = True
        self._pool.close()

    def _do(self, task: Callable[[], object]) -> None:
        if not self._is_closed:
            task()
