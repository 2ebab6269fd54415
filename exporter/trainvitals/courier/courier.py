"""Sending messages from a process that has something better to do."""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module

from trainvitals.courier.breaker import CircuitBreaker
from trainvitals.courier.destinations import Destination
from trainvitals.courier.gate import Limits
from trainvitals.courier.lane import Lane
from trainvitals.courier.message import Message
from trainvitals.courier.retrying import Patience

_log = logging.getLogger("trainvitals")
# What the threads would import when they first send; a fork in that moment would leave the child
# with a lock that nobody holds.
_NEEDED_LATER = ("tenacity", "encodings.idna", "ssl")


class Courier:
    """Sends messages to all destinations, each on a thread of its own, and never makes anybody wait.

    It retries with growing pauses, leaves a destination alone that keeps failing, tells the same
    thing once, and never sends more than a person can read; see `gate`. A child that is forked
    sends nothing. At the end of the interpreter what is left is tried once more, for
    `flush_seconds` at most.

    Args:
        destinations: Where to.
        patience: How long to try; None for the usual.
        limits: How much a person is told; None for the usual.
        failure_threshold: A destination that failed so often in a row is left alone.
        breaker_seconds: For so long.
        flush_seconds: How long the end of the interpreter may be held up.
        report: Told when a destination begins to fail or works again, in one line without secrets,
            on another thread; the log when None.

    Raises:
        RuntimeError: The system gives no thread.
    """

    def __init__(
        self,
        destinations: Sequence[Destination],
        *,
        patience: Patience | None = None,
        limits: Limits | None = None,
        failure_threshold: int = 5,
        breaker_seconds: float = 60.0,
        flush_seconds: float = 5.0,
        report: Callable[[str], object] | None = None,
    ) -> None:
        for name in _NEEDED_LATER:
            import_module(name)
        self._pid = os.getpid()
        self._flush_seconds = flush_seconds
        self._is_closed = False
        self._lanes = tuple(
            Lane(
                destination,
                patience=patience or Patience(),
                limits=limits or Limits(),
                breaker=CircuitBreaker(
                    failure_threshold=failure_threshold, timeout_seconds=breaker_seconds
                ),
                report=report or _log_report,
            )
            for destination in destinations
        )
        for lane in self._lanes:
            lane.start()
        atexit.register(self._flush)

    def send(self, message: Message) -> None:
        """Hand a message over; it costs some microseconds, and nothing is waited for."""
        if self._is_closed or os.getpid() != self._pid:
            return
        for lane in self._lanes:
            lane.put(message)

    def close(self, wait_seconds: float = 0.0) -> bool:
        """Take nothing more; what is left is tried once more, in the background.

        Args:
            wait_seconds: How long to wait for it.

        Returns:
            Whether nothing is left.
        """
        if os.getpid() != self._pid:
            return True
        if not self._is_closed:
            self._is_closed = True
            for lane in self._lanes:
                lane.close()
        deadline = time.monotonic() + wait_seconds
        for lane in self._lanes:
            if wait_seconds:  # waiting takes a lock
                lane.is_done.wait(max(0.0, deadline - time.monotonic()))
        is_done = all(lane.is_done.is_set() for lane in self._lanes)
        if is_done:
            atexit.unregister(self._flush)
        return is_done

    def _flush(self) -> None:
        self.close(self._flush_seconds)


def _log_report(text: str) -> None:
    _log.warning("%s", text)
