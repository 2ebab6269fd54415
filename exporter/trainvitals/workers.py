"""A pool of worker threads for tasks that may hang.

A driver call, or a `statvfs` on an unresponsive mount, cannot be cancelled. Therefore a pool of
reusable threads runs such tasks. A thread whose task hangs is unavailable until the task returns.
Meanwhile, the same task is not started a second time.

Fast tasks are run by few workers: the first worker runs one task after another. If the tasks take
longer than `HELP_AFTER_SECONDS`, another worker is woken. The number of woken workers then doubles
each time, up to one worker per task. Therefore a slow task delays the tasks behind it only briefly,
and fast tasks cause neither thread switches nor additional threads. Outcomes are also collected in
a queue, which avoids thread switches: the waiting thread is woken when a worker has no more tasks,
and checks the queue periodically while workers still have tasks.

Additional threads end later: whenever at least one worker has been idle at every moment of the past
`SPARE_AFTER_SECONDS`, one thread ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

HELP_AFTER_SECONDS = 0.01
MORE_HELP_AFTER_SECONDS = 0.005
SPARE_AFTER_SECONDS = 300.0

Item = TypeVar("Item")
Result = TypeVar("Result")


class Outcome(Generic[Result]):
    """The outcome of a task.

    Like all classes that the driver readers' processes import, this class does not use
    `dataclasses`, because the import would cost each process 1.3 MiB.

    Attributes:
        key: The key of the task.
        value: The returned value; None if the task raised an exception or is late.
        error: The exception that the task raised; None if the task returned or is late.
        late: Whether the task had not finished by the timeout; a late task continues in the
            background.
        seconds: The duration of the task; for a late task, the time for which the caller waited.
        ended_at: The time of `time.monotonic` at which the task ended or, for a late task, the wait
            for the task ended.
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


# A function that receives an outcome on the worker's thread. The second argument is True if the
# worker continues with another task immediately, so that more outcomes follow and the waiting
# thread need not be woken yet.
Deliver = Callable[[Outcome[Any], bool], None]


def attempt(key: str, task: Callable[[], Result]) -> Outcome[Result]:
    """Run a task and return its outcome, which contains any exception that the task raised."""
    started_at = time.monotonic()
    value = error = None
    try:
        value = task()
    except Exception as raised:  # noqa: BLE001 - the scrape runner's one broad except
        error = raised
    ended_at = time.monotonic()
    return Outcome(key, value, error, seconds=ended_at - started_at, ended_at=ended_at)


def attempt_without_faulty(
    task: Callable[[Sequence[Item]], Result], items: Sequence[Item]
) -> tuple[Result, list[tuple[Item, Exception]]]:
    """Run a task on several items, and omit each item that makes the task fail on its own.

    Returns:
        The return value of the task, and each omitted item with its error.

    Raises:
        Exception: The task failed on all items together but on no individual item, or failed on the
            remaining items.
    """
    whole = attempt("all", partial(task, items))
    if whole.error is None:
        return cast("Result", whole.value), []
    tried = ((item, attempt("one", partial(task, (item,))).error) for item in items)
    faulty = {at: (item, error) for at, (item, error) in enumerate(tried) if error is not None}
    if not faulty:
        raise whole.error
    kept = [item for at, item in enumerate(items) if at not in faulty]
    return task(kept), list(faulty.values())


class _Job:
    __slots__ = ("deliver", "key", "task")

    def __init__(self, key: str, task: Callable[[], object], deliver: Deliver) -> None:
        self.key = key
        self.task = task
        self.deliver = deliver


class WorkerPool:
    """A pool of worker threads that share a backlog of tasks.

    Args:
        name: The prefix of the thread names.
        limit: The maximum number of threads.
        clock: A function that returns the time in seconds, which decides when spare threads end.
    """

    def __init__(
        self, *, name: str, limit: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._limit = limit
        self._clock = clock
        self._backlog: deque[_Job] = deque()
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._none_idle_at = 0.0
        self._running: set[str] = set()

    @property
    def is_behind(self) -> bool:
        """Whether a task in the backlog is waiting for a worker."""
        return bool(self._backlog)

    def is_running(self, key: str) -> bool:
        """Return whether a task with this key has been submitted and has not ended."""
        return key in self._running

    def submit(self, key: str, task: Callable[[], object], deliver: Deliver) -> None:
        """Add a task to the backlog; call `wake` to have a worker run it.

        Args:
            key: The key of the task; no task with this key may be running.
            task: The function to call; an exception that it raises becomes the outcome's error.
            deliver: The function that receives the outcome.
        """
        self._running.add(key)
        self._backlog.append(_Job(key, task, deliver))

    def wake(self, count: int) -> None:
        """Wake at most `count` workers to take tasks from the backlog."""
        for _ in range(min(count, len(self._backlog))):
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                elif self._threads >= self._limit or not self._start_worker():
                    return
                if self._idle == 0:
                    self._none_idle_at = self._clock()
            self._wakeups.put(item=True)

    def gather(
        self,
        tasks: Mapping[str, Callable[[], Result]],
        patience: float,
        *,
        turn: float | None = None,
    ) -> dict[str, Outcome[Result]]:
        """Run tasks and return their outcomes after at most `patience` seconds.

        Args:
            tasks: The tasks to run, by key.
            patience: The maximum time to wait for all tasks together, in seconds.
            turn: The number of seconds for which a task runs before the next task is started; use
                this argument for tasks that slow each other down when run at the same time. If
                None, more workers are woken as needed.

        Returns:
            An outcome for each key. `late` is set for a task that has not finished in time, and for
            a task that is still running from an earlier call, which is not started a second time.
        """
        queue = _OutcomeQueue()
        started_at = time.monotonic()
        due = [key for key in tasks if key not in self._running]
        for key in due:
            self.submit(key, tasks[key], queue.put)
        self.wake(1)
        outcomes: dict[str, Outcome[Result]] = {}
        self._await(queue, outcomes, len(due), started_at + patience, turn)
        now = time.monotonic()
        for key in tasks:
            if key not in outcomes:
                outcomes[key] = Outcome(key, late=True, seconds=now - started_at, ended_at=now)
        return outcomes

    def close(self) -> None:
        """End the idle worker threads; threads whose tasks hang end when the process ends."""
        with self._lock:
            for _ in range(self._threads):
                self._wakeups.put(item=False)

    def _await(
        self,
        queue: _OutcomeQueue,
        outcomes: dict[str, Outcome[Result]],
        expected: int,
        until: float,
        turn: float | None,
    ) -> None:
        now = time.monotonic()
        help_after = HELP_AFTER_SECONDS if turn is None else turn
        help_at = now + help_after
        count = 1
        while len(outcomes) < expected and now < until:
            found = queue.take(min(until, help_at) - now)
            outcomes.update((outcome.key, outcome) for outcome in found)
            now = time.monotonic()
            if now >= help_at:
                # If this thread was not woken for these outcomes, more outcomes may follow.
                again = MORE_HELP_AFTER_SECONDS if turn is None else turn
                help_at = now + again if found or self.is_behind else until
                if turn is None:
                    self.wake(count)
                    count *= 2
                elif not found:
                    self.wake(1)

    def _start_worker(self) -> bool:
        thread = threading.Thread(
            target=self._work, name=f"{self._name}-{self._threads + 1}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no further thread can be started; the existing threads continue
            return False
        self._threads += 1
        return True

    def _work(self) -> None:
        while self._wakeups.get():
            while self._has_more():
                try:
                    job = self._backlog.popleft()
                except IndexError:  # another worker took the task
                    continue
                self._do(job)

    def _has_more(self) -> bool:
        """Return whether the backlog contains a task; if not, the worker becomes idle or spare."""
        with self._lock:
            if self._backlog:
                return True
            if self._idle and self._clock() - self._none_idle_at > SPARE_AFTER_SECONDS:
                self._none_idle_at = self._clock()
                self._threads -= 1
                self._wakeups.put(item=False)  # ends this worker or one of the idle ones
            else:
                self._idle += 1
            return False

    def _do(self, job: _Job) -> None:
        outcome = attempt(job.key, job.task)
        self._running.discard(job.key)
        job.deliver(outcome, self.is_behind)


class _OutcomeQueue:
    """A queue of outcomes from the workers to the waiting thread."""

    __slots__ = ("_outcomes", "_wakeups")

    def __init__(self) -> None:
        self._outcomes: deque[Outcome[Any]] = deque()
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def put(self, outcome: Outcome[Any], more: bool) -> None:  # noqa: FBT001 - as `Deliver` has it
        self._outcomes.append(outcome)
        if not more:
            self._wakeups.put(None)

    def take(self, timeout: float) -> list[Outcome[Any]]:
        """Wait at most `timeout` seconds for an outcome, and return all arrived outcomes."""
        with suppress(Empty):
            self._wakeups.get(timeout=max(0.0, timeout))
        return [self._outcomes.popleft() for _ in range(len(self._outcomes))]
