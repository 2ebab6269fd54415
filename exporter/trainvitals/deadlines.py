"""Who must have done something until when, without a timer of its own for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

Action = Callable[[], None]


class Deadlines:
    """One deadline for each waiter, and what to do when it passes.

    Those that were given the same number of seconds stand in one queue, which is in order by
    itself; so the nearest deadline is found by looking at the heads of a few queues.

    Args:
        clock: A time in seconds that never goes back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._queues: dict[float, dict[Hashable, tuple[float, Action]]] = {}
        self._seconds: dict[Hashable, float] = {}

    def set(self, waiter: Hashable, seconds: float, action: Action) -> None:
        """Give a waiter this many seconds from now, in place of what it had."""
        self.clear(waiter)
        self._seconds[waiter] = seconds
        queue = self._queues.setdefault(seconds, {})
        queue[waiter] = (self._clock() + seconds, action)

    def clear(self, waiter: Hashable) -> None:
        """Take away a waiter's deadline; one without is fine."""
        seconds = self._seconds.pop(waiter, None)
        if seconds is not None:
            del self._queues[seconds][waiter]

    def nearest_seconds(self) -> float | None:
        """Give the seconds until the nearest deadline, at least 0; None where there is none."""
        heads = [next(iter(queue.values()))[0] for queue in self._queues.values() if queue]
        return max(0.0, min(heads) - self._clock()) if heads else None

    def take_expired(self) -> list[Action]:
        """Give what is to be done for those whose deadline has passed, and take it away."""
        now = self._clock()
        expired = []
        for queue in self._queues.values():
            for waiter, (deadline, action) in queue.items():
                if deadline > now:
                    break
                expired.append((waiter, action))
        for waiter, _ in expired:
            self.clear(waiter)
        return [action for _, action in expired]
