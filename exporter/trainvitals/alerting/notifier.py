"""Sends notifications through Slack, Discord, e-mail and webhooks, without Alertmanager.

    Notifier                for a process that must not block: one queue and thread per channel,
                            with retries, a circuit breaker and a rate limit
    deliver(message, …)     for commands: sends to each channel and waits for the responses

The channels are configured by the variables in `.env.example`; see `channels`. Only a channel's own
thread uses the channel's rate limiter, circuit breaker and network connections. Queueing a message
neither blocks nor takes a lock, because `SimpleQueue.put` is reentrant.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from threading import Event, Thread

from trainvitals.alerting.channels import DirectChannel, Discord, Email, Slack, Webhook
from trainvitals.alerting.message import Message
from trainvitals.alerting.ratelimit import RateLimit, RateLimiter
from trainvitals.alerting.retry import RetryPolicy, call_with_retries
from trainvitals.alerting.transport import DeliveryError
from trainvitals.retry import CircuitBreaker, CircuitOpenError, CircuitState
from trainvitals.units import format_duration

__all__ = ["Discord", "Email", "Notifier", "Outcome", "Slack", "Webhook", "deliver"]

_log = logging.getLogger("trainvitals")
_MOST_QUEUED = 100
# The modules for sending are imported here and not in the threads. A fork during an import would
# leave the child process with an import lock that no thread releases.
_NEEDED_LATER = ("tenacity", "encodings.idna", "ssl")


class Notifier:
    """Sends messages to all channels in the background, with one thread per channel.

    The notifier retries failed messages with exponential backoff, pauses a channel after repeated
    failures, deduplicates messages and limits the message rate; see `ratelimit`. A forked child
    process sends no messages. When the interpreter exits, the notifier tries to send queued
    messages once more, for at most `flush_seconds`.

    Args:
        channels: The channels that receive messages.
        retries: The limits of retries; None for the default limits.
        limit: The rate limit of each channel; None for the default rate limit.
        failure_threshold: The number of consecutive failures that pause a channel.
        breaker_seconds: The duration of a channel's pause in seconds.
        flush_seconds: The maximum delay of the interpreter's exit, in seconds.
        report: Called when a channel begins to fail or recovers, on another thread and with one
            line that contains no secrets; None to log the line.

    Raises:
        RuntimeError: No thread can be started.
    """

    def __init__(
        self,
        channels: Sequence[DirectChannel],
        *,
        retries: RetryPolicy | None = None,
        limit: RateLimit | None = None,
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
        self._queues = tuple(
            _ChannelQueue(
                channel,
                retries or RetryPolicy(),
                RateLimiter(limit or RateLimit()),
                CircuitBreaker(failure_threshold, breaker_seconds),
                report or partial(_log.warning, "%s"),
            )
            for channel in channels
        )
        for each in self._queues:
            each.start()
        atexit.register(self._flush)

    def send(self, message: Message) -> None:
        """Queue a message without blocking; a call takes microseconds."""
        if self._is_closed or os.getpid() != self._pid:
            return
        for each in self._queues:
            each.put(message)

    def close(self, wait_seconds: float = 0.0) -> bool:
        """Stop accepting messages, and send the queued messages in the background.

        Messages that are passed to `send` after this call are discarded. Each channel's thread
        immediately tries to send the channel's queued messages, once and without retries, and
        exits.

        Args:
            wait_seconds: The maximum wait for the queued messages to be sent, in seconds.

        Returns:
            Whether the queues of all channels are empty.
        """
        if os.getpid() != self._pid:
            return True
        if not self._is_closed:
            self._is_closed = True
            for each in self._queues:
                each.close()
        deadline = time.monotonic() + wait_seconds
        for each in self._queues:
            if wait_seconds:  # Event.wait takes a lock, so it is called only if necessary.
                each.is_done.wait(max(0.0, deadline - time.monotonic()))
        is_done = all(each.is_done.is_set() for each in self._queues)
        if is_done:
            atexit.unregister(self._flush)
        return is_done

    def _flush(self) -> None:
        self.close(self._flush_seconds)


class _ChannelQueue:
    """A channel's queue and the thread that sends the queued messages.

    Attributes:
        is_done: The event that is set when the queue has been closed and is empty.
    """

    def __init__(
        self,
        channel: DirectChannel,
        retries: RetryPolicy,
        limiter: RateLimiter,
        breaker: CircuitBreaker,
        report: Callable[[str], object],
    ) -> None:
        self._channel = channel
        self._retries = retries
        self._limiter = limiter
        self._breaker = breaker
        self._report = report
        self._queue: SimpleQueue[Message | None] = SimpleQueue()
        self._dropped = self._dropped_counted = 0
        self._is_failing = False
        # This is not an Event: setting an Event takes a lock, and the garbage collector may close a
        # monitor.
        self._is_closing = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self.is_done = Event()
        self._thread = Thread(target=self._run, name="trainvitals-notifier", daemon=True)

    def start(self) -> None:
        """Start the channel's thread, or raise RuntimeError if no thread can be started."""
        self._thread.start()

    def put(self, message: Message) -> None:
        """Queue a message.

        If the queue is full, the message is dropped, and the next message reports the loss.
        """
        if self._queue.qsize() < _MOST_QUEUED:
            self._queue.put(message)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Stop accepting messages; the thread tries once to send the queued messages, and exits."""
        self._is_closing = True
        self._wake.put(None)
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._receive(self._find_wait())
                self._send_due()
            self._receive(0.0)
            rest = self._limiter.take_rest()
            if rest is not None:
                self._send(rest)
        finally:
            self.is_done.set()

    def _receive(self, wait_seconds: float | None) -> None:
        """Wait for a message, and receive all queued messages.

        If `wait_seconds` is None, the wait has no limit.
        """
        try:
            message = self._queue.get(timeout=wait_seconds)
            while True:
                if message is not None:
                    self._limiter.put(message)
                message = self._queue.get_nowait()
        except Empty:
            dropped = self._dropped
            self._limiter.count_lost(dropped - self._dropped_counted)
            self._dropped_counted = dropped

    def _find_wait(self) -> float | None:
        """Return the longest time to wait for a new message, in seconds; None for no limit."""
        wait = self._limiter.wait_seconds
        return None if wait is None else max(wait, self._breaker.wait_seconds)

    def _send_due(self) -> None:
        while not self._must_stop():
            message = self._limiter.take()
            if message is None:
                return
            self._send(message)

    def _send(self, message: Message) -> None:
        once = partial(self._channel.send, message, self._retries.timeout_seconds)
        try:
            call_with_retries(
                partial(self._breaker.call, once),
                self._retries,
                sleep=self._sleep,
                must_stop=self._must_stop,
            )
        except DeliveryError as error:
            self._note_failure(message, error, is_temporary=error.is_temporary)
        except CircuitOpenError as error:
            self._note_failure(message, error, is_temporary=False)
        else:
            if self._is_failing:
                self._is_failing = False
                self._report(f"{self._channel.title} accepts messages again")

    def _sleep(self, seconds: float) -> None:
        with suppress(Empty):
            self._wake.get(timeout=seconds)

    def _must_stop(self) -> bool:
        return self._is_closing or self._breaker.state is CircuitState.OPEN

    def _note_failure(self, message: Message, error: Exception, *, is_temporary: bool) -> None:
        if is_temporary and not self._is_closing:
            self._limiter.put_back(message)
        else:
            self._limiter.count_lost(1)
        if not self._is_failing or self._is_closing:
            self._is_failing = True
            self._report(f"{self._channel.title} does not accept messages: {error}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of sending a message to one channel.

    Attributes:
        channel: The channel's title, such as `Slack`.
        reason: The reason why the message was not delivered, without secrets; None if the message
            was delivered. If a remedy is known, the text ends with the remedy.
    """

    channel: str
    reason: str | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the channel has accepted the message."""
        return self.reason is None


def deliver(
    message: Message,
    channels: Sequence[DirectChannel],
    *,
    retries: RetryPolicy | None = None,
    timeout_seconds: float = 60.0,
) -> tuple[Outcome, ...]:
    """Send a message to all channels in parallel, with retries, and wait for the outcomes.

    Args:
        message: The message to send.
        channels: The channels that receive messages.
        retries: The limits of retries; None for the default limits.
        timeout_seconds: The timeout for all channels together, in seconds.

    Returns:
        The outcome for each channel, in the order of the channels.
    """
    policy = retries or RetryPolicy()
    late = f"no response within {format_duration(timeout_seconds)}"
    outcomes = [Outcome(each.title, late) for each in channels]

    def run(place: int, channel: DirectChannel) -> None:
        def attempt() -> None:
            try:
                channel.send(message, policy.timeout_seconds)
            except DeliveryError as error:
                outcomes[place] = Outcome(channel.title, f"{late}; before that: {error}")
                raise

        try:
            call_with_retries(attempt, policy, sleep=time.sleep)
        except DeliveryError as error:
            outcomes[place] = Outcome(channel.title, str(error))
        else:
            outcomes[place] = Outcome(channel.title)

    # The threads are daemon threads, because a DNS lookup cannot be interrupted.
    threads = [Thread(target=run, args=pair, daemon=True) for pair in enumerate(channels)]
    deadline = time.monotonic() + timeout_seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(outcomes)
