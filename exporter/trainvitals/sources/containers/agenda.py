"""Things to be done after a while, one after the other on one thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

from trainvitals.crew import Outcome, Result, attempt

_log = logging.getLogger(__name__)
_JOIN_SECONDS = 1.0


def report_failure(outcome: Outcome[Result], more: bool = False) -> None:  # noqa: ARG001, FBT001, FBT002 - as `crew.Deliver` has it
    """Log what a task raised, which it should not."""
    if outcome.error is not None:
        _log.error("%s failed: %s", outcome.key, outcome.error, exc_info=outcome.error)


class Agenda:
    """Does short things on time; what may wait for somebody is given to others.

    Args:
        name: The thread's name.
    """

    def __init__(self, *, name: str) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._bell = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; what was entered before is done now."""
        self._thread.start()

    def call_after(self, seconds: float, task: Callable[[], object]) -> None:
        """Enter something to be done after so many seconds."""
        with self._bell:
            if not self._is_closing:
                heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), task))
                self._bell.notify()

    def repeat(self, seconds: float, task: Callable[[], object]) -> None:
        """Enter something to be done now and then again and again, with so many seconds between."""

        def turn() -> None:
            try:
                task()
            finally:
                self.call_after(seconds, turn)

        self.call_after(0.0, turn)

    def close(self) -> None:
        """End; what is entered is not done any more."""
        with self._bell:
            self._is_closing = True
            self._due.clear()
            self._bell.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while (task := self._await_next()) is not None:
            report_failure(attempt("a look at the containers", task))

    def _await_next(self) -> Callable[[], object] | None:
        with self._bell:
            while not self._is_closing:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._bell.wait(wait)
            return None
