"""A loop that waits for file descriptors, for deadlines and for calls from other threads."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress

Action = Callable[[], None]


class Deadlines:
    """The deadlines of waiters, and the functions that are called after the deadlines.

    Deadlines that were set for the same number of seconds share a queue, which is always sorted.
    Therefore only the heads of a few queues are compared to find the nearest deadline.
    """

    def __init__(self) -> None:
        self._queues: dict[float, dict[Hashable, tuple[float, Action]]] = {}
        self._seconds: dict[Hashable, float] = {}

    def set(self, waiter: Hashable, seconds: float, action: Action) -> None:
        """Set or replace the deadline of a waiter, in seconds from now."""
        self.clear(waiter)
        self._seconds[waiter] = seconds
        queue = self._queues.setdefault(seconds, {})
        queue[waiter] = (time.monotonic() + seconds, action)

    def clear(self, waiter: Hashable) -> None:
        """Remove the deadline of a waiter, if a deadline is set."""
        seconds = self._seconds.pop(waiter, None)
        if seconds is not None:
            del self._queues[seconds][waiter]

    def nearest_seconds(self) -> float | None:
        """Return the seconds until the nearest deadline, at least 0; None if no deadline is set."""
        heads = [next(iter(queue.values()))[0] for queue in self._queues.values() if queue]
        return max(0.0, min(heads) - time.monotonic()) if heads else None

    def take_expired(self) -> list[Action]:
        """Remove the expired deadlines, and return their actions."""
        now = time.monotonic()
        expired = []
        for queue in self._queues.values():
            for waiter, (deadline, action) in queue.items():
                if deadline > now:
                    break
                expired.append((waiter, action))
        for waiter, _ in expired:
            self.clear(waiter)
        return [action for _, action in expired]


class Loop:
    """An event loop that calls actions after events and deadlines.

    The loop wakes up only for an event or a deadline.

    Attributes:
        deadlines: The deadlines for which the loop waits.
    """

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Action] = deque()
        self._receiver, self._sender = socket.socketpair()
        self._woken = False
        self._thread: int | None = None
        for end in (self._receiver, self._sender):
            end.settimeout(0)
        self.watch(self._receiver.fileno(), 0, selectors.EVENT_READ, self._take_wake)

    def turn(self) -> None:
        """Wait for the next events and deadlines, and call their actions."""
        self._thread = threading.get_ident()
        timeout = 0.0 if self._calls else self.deadlines.nearest_seconds()
        for key, _ in self._selector.select(timeout):
            key.data()
        # Only the calls that are queued now are made, because calls that queue further calls must
        # not delay the sockets.
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        for action in self.deadlines.take_expired():
            action()

    def watch(self, descriptor: int, before: int, events: int, action: Action) -> None:
        """Call an action whenever a file descriptor is ready.

        Args:
            descriptor: The file descriptor to watch.
            before: The events for which the file descriptor has been watched so far; 0 if the file
                descriptor has not been watched.
            events: The events to watch for from now on; 0 to stop watching the file descriptor.
            action: The function that is called when an event occurs.
        """
        if not events and before:
            self._selector.unregister(descriptor)
        elif events and before:
            self._selector.modify(descriptor, events, action)
        elif events:
            self._selector.register(descriptor, events, action)

    def call_soon(self, action: Action) -> None:
        """Schedule a call in the loop's thread; any thread may call this method.

        Several scheduled calls wake the loop only once.
        """
        self._calls.append(action)
        if threading.get_ident() != self._thread:
            self.wake()

    def wake(self) -> None:
        """Make `turn` return soon; this method may be called in any thread or signal handler."""
        if not self._woken:
            self._woken = True
            # A full buffer also wakes the loop, and a closed loop needs no wake-up.
            with suppress(OSError):
                self._sender.send(b"\0")

    def close(self) -> None:
        """Release the loop's own file descriptors."""
        self._selector.close()
        self._sender.close()
        self._receiver.close()

    def _take_wake(self) -> None:
        with suppress(BlockingIOError):
            self._receiver.recv(4096)
        # The flag is cleared before the queued calls are made. A thread that finds the flag set has
        # therefore queued its call in time.
        self._woken = False
