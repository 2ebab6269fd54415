"""The way to one destination: a queue, a thread that empties it, and what it knows of the other end.

The thread is the only one that knows the gate, the breaker and the network. Whoever puts a message
into the queue neither waits nor takes a lock: `SimpleQueue.put` may even interrupt itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread

from trainvitals.courier.breaker import CircuitBreaker, CircuitState
from trainvitals.courier.destinations import Destination
from trainvitals.courier.failures import DeliveryError
from trainvitals.courier.gate import Gate, Limits
from trainvitals.courier.message import Message
from trainvitals.courier.retrying import Patience, try_again
from trainvitals.courier.sending import send

_MOST_QUEUED = 100


class Lane:
    """Sends messages to one destination, on a thread of its own.

    Args:
        destination: Where to.
        patience: How long to try.
        limits: How much a person is told.
        breaker: Leaves a destination alone that does not work.
        report: Told when the destination begins to fail and when it works again, in one line
            without secrets, on the thread of the lane.
        clock: Seconds that never go back.

    Attributes:
        is_done: Set when the lane was closed and nothing is left to send.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        patience: Patience,
        limits: Limits,
        breaker: CircuitBreaker,
        report: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._destination = destination
        self._patience = patience
        self._gate = Gate(limits, clock=clock)
        self._breaker = breaker
        self._report = report
        self._queue: SimpleQueue[Message | None] = SimpleQueue()
        self._dropped = self._dropped_seen = 0
        self._is_failing = False
        # No Event: setting one takes a lock, and a monitor may be closed by the garbage collector.
        self._is_closing = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self.is_done = Event()
        self._thread = Thread(target=self._run, name="trainvitals-courier", daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: The system gives no thread.
        """
        self._thread.start()

    def put(self, message: Message) -> None:
        """Take a message; what finds no room is counted, and told with the next one."""
        if self._queue.qsize() < _MOST_QUEUED:
            self._queue.put(message)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Take nothing more; what is there is tried once more, and the thread ends."""
        self._is_closing = True
        self._wake.put(None)
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._take_in(self._find_wait())
                self._send_what_is_due()
            self._send_rest()
        finally:
            self.is_done.set()

    def _take_in(self, wait_seconds: float | None) -> None:
        """Wait for a message, for ever where that is None; take all that came."""
        try:
            message = self._queue.get(timeout=wait_seconds)
            while True:
                if message is not None:
                    self._gate.enter(message)
                message = self._queue.get_nowait()
        except Empty:
            dropped = self._dropped
            self._gate.count_lost(dropped - self._dropped_seen)
            self._dropped_seen = dropped

    def _find_wait(self) -> float | None:
        """Tell when there is something to do without a new message; None: not before one comes."""
        gate = self._gate.wait_seconds
        return None if gate is None else max(gate, self._breaker.wait_seconds)

    def _send_what_is_due(self) -> None:
        while not self._is_closing and self._breaker.state is not CircuitState.OPEN:
            message = self._gate.take()
            if message is None:
                return
            self._send(message)

    def _send_rest(self) -> None:
        self._take_in(0.0)
        message = self._gate.take_rest()
        if message is not None:
            self._send(message)

    def _send(self, message: Message) -> None:
        once = partial(send, message, self._destination, self._patience.timeout_seconds)
        try:
            try_again(
                partial(self._breaker.call, once),
                self._patience,
                sleep=self._sleep,
                is_ending=self._must_stop,
            )
        except DeliveryError as error:
            self._note_failure(message, error)
        else:
            if self._is_failing:
                self._is_failing = False
                self._report(f"{self._destination.title} takes messages again")

    def _sleep(self, seconds: float) -> None:
        with suppress(Empty):
            self._wake.get(timeout=seconds)

    def _must_stop(self) -> bool:
        return self._is_closing or self._breaker.state is CircuitState.OPEN

    def _note_failure(self, message: Message, error: DeliveryError) -> None:
        if error.is_passing and not self._is_closing:
            self._gate.give_back(message)
        else:
            self._gate.count_lost(1)
        if not self._is_failing or self._is_closing:
            self._is_failing = True
            self._report(f"{self._destination.title} does not take messages: {error}")
