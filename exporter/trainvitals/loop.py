"""A loop that waits for file descriptors, for deadlines and for calls from other threads."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from trainvitals.deadlines import Action, Deadlines


class Loop:
    """Waits and calls; with nothing to wait for but file descriptors, it never wakes by itself.

    Attributes:
        deadlines: What is done when its time has come.
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
        """Wait until there is something to do, and do it."""
        self._thread = threading.get_ident()
        timeout = 0.0 if self._calls else self.deadlines.nearest_seconds()
        for key, _ in self._selector.select(timeout):
            key.data()
        # Only those that are there now: calls that make calls must not keep out the sockets.
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        for action in self.deadlines.take_expired():
            action()

    def watch(self, descriptor: int, before: int, events: int, action: Action) -> None:
        """Have an action called whenever a file descriptor is ready.

        Args:
            descriptor: The file descriptor.
            before: The events it is watched for so far; 0 for none.
            events: The events from now on; 0 for none.
            action: What is called.
        """
        if not events and before:
            self._selector.unregister(descriptor)
        elif events and before:
            self._selector.modify(descriptor, events, action)
        elif events:
            self._selector.register(descriptor, events, action)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Have an action called in the loop's thread; from any thread. Many cost one wake-up."""
        self._calls.append(action)
        if threading.get_ident() != self._thread:
            self.wake()

    def wake(self) -> None:
        """Make the loop take a turn; from any thread or signal handler."""
        if not self._woken:
            self._woken = True
            # A full buffer wakes as well, and a loop that is closed needs no waking.
            with suppress(OSError):
                self._sender.send(b"\0")

    def close(self) -> None:
        """Let go of the loop's own file descriptors."""
        self._selector.close()
        self._sender.close()
        self._receiver.close()

    def _take_wake(self) -> None:
        with suppress(BlockingIOError):
            self._receiver.recv(4096)
        # Cleared before the calls are taken: who finds it set has added a call before that.
        self._woken = False
