"""A pool of worker threads for work that may hang.

A driver call or a `statvfs` on a dead mount cannot be cancelled, only left alone. Therefore work is
run by a pool: its threads are reused, and a thread whose task hangs is missing until the task
returns. While it hangs, the same task is not started again.

Quick work is done by few workers: the first take one task after the other. Only when that
takes longer than `HELP_AFTER_SECONDS` is another worker woken, and then twice as many each time
as the time before, up to one for each task. So tasks behind a slow one wait for it a moment at
most, and quick tasks cost neither thread switches nor threads. For the same reason outcomes are
collected: the thread that waits for them is woken when a worker runs out of tasks, and checks
periodically as long as workers go from task to task.
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

Item = TypeVar("Item")
Result = TypeVar("Result")


class Outcome(Generic[Result]):
    """The outcome of a task.

    A class written out, like all that the driver readers' processes import: `dataclasses` would
    cost each of them 1.3 MiB.

    Attributes:
        key: Which task.
        value: The returned value; None if the task raised or is late.
        error: The exception that the task raised; None if it returned or is late.
        late: It had not finished when the patience was over; it continues in the background.
        seconds: How long it ran; for a late task, how long the caller waited.
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


# Takes an outcome on the worker's thread. Its second argument is True when more outcomes will follow,
# because the worker continues with another task at once: then it need not wake a waiting thread.
Deliver = Callable[[Outcome[Any], bool], None]


def attempt(key: str, task: Callable[[], Result]) -> Outcome[Result]:
    """Run a task and return its outcome, whatever it raises."""
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
    """Run a task on several items, without those on which it fails alone.

    Returns:
        What the task returned, and each item that was left out, with the error.

    Raises:
        Exception: The task failed, and on none of the items alone.
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
    """Worker threads that share a backlog of tasks.

    Args:
        name: Stem of the threads' names.
        limit: The largest number of threads.
    """

    def __init__(self, *, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._backlog: deque[_Job] = deque()
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._running: set[str] = set()

    @property
    def is_behind(self) -> bool:
        """Whether a task waits for a worker."""
        return bool(self._backlog)

    def is_running(self, key: str) -> bool:
        """Return whether the task of that key was submitted and has not ended."""
        return key in self._running

    def submit(self, key: str, task: Callable[[], object], deliver: Deliver) -> None:
        """Put a task into the backlog; `wake` a worker to have it done.

        Args:
            key: Names the task; it must not be running.
            task: The work; what it raises becomes the outcome's error.
            deliver: Takes the outcome.
        """
        self._running.add(key)
        self._backlog.append(_Job(key, task, deliver))

    def wake(self, count: int) -> None:
        """Wake at most this number of workers to take tasks from the backlog."""
        for _ in range(min(count, len(self._backlog))):
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                elif self._threads >= self._limit or not self._start_worker():
                    return
            self._wakeups.put(item=True)

    def gather(
        self,
        tasks: Mapping[str, Callable[[], Result]],
        patience: float,
        *,
        turn: float | None = None,
    ) -> dict[str, Outcome[Result]]:
        """Run all tasks and return their outcomes, after `patience` seconds at the latest.

        Args:
            tasks: The tasks by key.
            patience: Seconds to wait for all of them together.
            turn: For tasks that only slow each other down: how many seconds one has to itself
                before the next is begun beside it. None: as many at once as it takes.

        Returns:
            An outcome for each key. A task that is late now, or still runs from an earlier
            gathering, has `late` set; the latter is not started again.
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
        """End the idle workers; those that hang end with the process."""
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
                # Outcomes that this thread was not woken for: there may be more of them.
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
        except RuntimeError:  # the system has no thread left; the existing ones continue
            return False
        self._threads += 1
        return True

    def _work(self) -> None:
        while self._wakeups.get():
            while self._has_more():
                try:
                    job = self._backlog.popleft()
                except IndexError:  # another worker was quicker
                    continue
                self._do(job)

    def _has_more(self) -> bool:
        """Return whether there is work left; without any, count this worker as idle."""
        with self._lock:
            if not self._backlog:
                self._idle += 1
                return False
            return True

    def _do(self, job: _Job) -> None:
        outcome = attempt(job.key, job.task)
        self._running.discard(job.key)
        job.deliver(outcome, self.is_behind)


class _OutcomeQueue:
    """Outcomes on their way from the workers to the thread that waits for them."""

    __slots__ = ("_outcomes", "_wakeups")

    def __init__(self) -> None:
        self._outcomes: deque[Outcome[Any]] = deque()
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def put(self, outcome: Outcome[Any], more: bool) -> None:  # noqa: FBT001 - as `Deliver` has it
        self._outcomes.append(outcome)
        if not more:
            self._wakeups.put(None)

    def take(self, timeout: float) -> list[Outcome[Any]]:
        """Wait for an outcome, at most `timeout` seconds, and return all outcomes so far."""
        with suppress(Empty):
            self._wakeups.get(timeout=max(0.0, timeout))
        return [self._outcomes.popleft() for _ in range(len(self._outcomes))]
