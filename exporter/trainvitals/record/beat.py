"""When to look: a steady beat, and the signals that end it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Beat:
    """Times that are an interval apart, however long what happens in between takes.

    Args:
        interval_seconds: How far apart.
        clock: Seconds that never go back.
    """

    def __init__(
        self, interval_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._start = clock()
        self._number = 0

    def advance(self) -> tuple[float, int]:
        """Give how long it is to the next beat, in seconds, and how many were missed before it."""
        passed = (self._clock() - self._start) / self._interval_seconds
        number = max(self._number + 1, -int(-passed // 1))
        missed = number - self._number - 1
        self._number = number
        return max(0.0, self._start + number * self._interval_seconds - self._clock()), missed


class Ending:
    """SIGTERM, SIGINT and SIGHUP, which end a recording between two snapshots, never in one.

    It takes over the signals, which only the main thread can do, until it is closed.

    Args:
        on_user_signal: Called at SIGUSR1.
    """

    def __init__(self, on_user_signal: Callable[[], None] = lambda: None) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before = [(number, signal.signal(number, self._end)) for number in _ENDINGS]
        before = signal.signal(signal.SIGUSR1, lambda *_: on_user_signal())
        self._before.append((signal.SIGUSR1, before))

    def close(self) -> None:
        """Give the signals back."""
        for number, handler in self._before:
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float) -> bool:
        """Wait so long, and tell whether it is the end, which cuts the waiting short."""
        ready, _, _ = select.select([self._reader], [], [], max(0.0, seconds))
        return bool(ready)

    def _end(self, number: int, _: FrameType | None) -> None:
        with suppress(BlockingIOError):  # full of earlier signals
            os.write(self._writer, bytes([number]))
