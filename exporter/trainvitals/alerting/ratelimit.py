"""Deduplicates messages and limits their rate.

- **Deduplication.** After a message is sent, other messages with the same key wait for
  `repeat_seconds`; then only the last waiting message is sent, together with the number of waiting
  messages. A message with a higher severity, and a message that resolves the previous one, are sent
  immediately.
- **Rate limit.** A token bucket contains at most `burst` tokens, and one token is added every
  `refill_seconds`; each sent message takes one token. With the last token, all waiting messages are
  sent as a single message.
- **Losses.** If messages are dropped, the next message states how many were lost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainvitals.alerting.message import Message, Severity
from trainvitals.units import count_noun, format_duration

_RANKS: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}
_MOST_WAITING, _MOST_KEYS, _MOST_TITLES = 100, 500, 10
_LATE_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The limits for the messages to a channel.

    Attributes:
        repeat_seconds: The minimum time between two messages with the same key, in seconds.
        burst: The number of messages that may be sent in immediate succession.
        refill_seconds: The average time between two messages after a burst, in seconds.
    """

    repeat_seconds: float = 600.0
    burst: int = 5
    refill_seconds: float = 60.0


class TokenBucket:
    """A token bucket, which allows a burst of operations and then one operation per interval.

    Args:
        burst: The maximum number of tokens in the bucket.
        refill_seconds: The interval in seconds at which a token is added.
        now: The current time in seconds; the bucket is full at the start.
    """

    def __init__(self, burst: int, refill_seconds: float, now: float) -> None:
        self._burst, self._refill_seconds = burst, refill_seconds
        self._tokens, self._at = float(burst), now

    def take(self, now: float) -> bool:
        """Take a token from the bucket; return whether a token was available."""
        if self.wait_seconds(now) > 0:
            return False
        self._tokens -= 1.0
        return True

    def wait_seconds(self, now: float) -> float:
        """Return the time until the bucket contains a token, in seconds."""
        gained = max(0.0, now - self._at) / self._refill_seconds
        self._tokens = min(float(self._burst), self._tokens + gained)
        self._at = now
        # Rounding errors are ignored, because they would cause waits of nanoseconds.
        return max(0.0, (1.0 - self._tokens) * self._refill_seconds - 1e-6)

    @property
    def is_low(self) -> bool:
        """Whether the bucket contains less than one token."""
        return self._tokens < 1.0 - 1e-6


@dataclass(slots=True)
class _Known:
    """The state of a key: the last message sent, the end of the wait, and the waiting messages."""

    sent: Message
    until: float
    held: int = 0
    last: Message | None = None

    def is_urgent(self, message: Message) -> bool:
        if message.is_over != self.sent.is_over:
            return message.is_over
        return _RANKS[message.severity] > _RANKS[self.sent.severity]


class RateLimiter:
    """Decides whether messages are sent now, sent later, or merged into one message.

    Args:
        limit: The limits of the channel.
        clock: Returns the time of a monotonic clock, in seconds.
    """

    def __init__(self, limit: RateLimit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._bucket = TokenBucket(limit.burst, limit.refill_seconds, clock())
        self._known: dict[str, _Known] = {}
        self._ready: deque[tuple[float, Message]] = deque()
        self._lost = 0

    def put(self, message: Message) -> None:
        """Add a message to the waiting messages."""
        now = self._clock()
        self._release_due(now)
        known = self._known.get(message.key)
        if known is None:
            if len(self._known) < _MOST_KEYS:
                self._known[message.key] = _Known(message, now + self._limit.repeat_seconds)
            self._queue(message, now)
        elif known.is_urgent(message):
            known.sent = message
            self._queue(_add_line(message, _describe_held(known.held)), now)
            known.held, known.last = 0, None
        else:
            known.held += 1
            known.last = message

    def count_lost(self, number: int) -> None:
        """Count messages that the caller has dropped, so that the next message can report them."""
        self._lost += number

    def put_back(self, message: Message) -> None:
        """Return a message to the front of the queue after its delivery failed."""
        self._ready.appendleft((self._clock(), message))
        self._drop_excess()

    def take(self) -> Message | None:
        """Return the next message to send now; None if no message may be sent."""
        now = self._clock()
        self._release_due(now)
        if not self._ready or not self._bucket.take(now):
            return None
        return self._next(now, everything=self._bucket.is_low)

    def take_rest(self) -> Message | None:
        """Merge all waiting messages despite the rate limit; return None if no message waits."""
        now = self._clock()
        for known in self._known.values():
            self._release(known, now)
        return self._next(now, everything=True) if self._ready else None

    @property
    def wait_seconds(self) -> float | None:
        """Return the seconds until `take` may return a message; None if no message waits."""
        now = self._clock()
        if self._ready:
            return self._bucket.wait_seconds(now)
        dues = [known.until for known in self._known.values() if known.held]
        return max(0.0, min(dues) - now) if dues else None

    def _release_due(self, now: float) -> None:
        """Queue the messages that have waited long enough, and remove keys without new messages."""
        for key, known in list(self._known.items()):
            if now < known.until:
                continue
            if known.held:
                self._release(known, now)
            else:
                del self._known[key]

    def _release(self, known: _Known, now: float) -> None:
        if known.last is None:
            return
        line = _describe_held(known.held)
        known.sent = known.last
        known.held, known.last = 0, None
        known.until = now + self._limit.repeat_seconds
        self._queue(_add_line(known.sent, line), now)

    def _queue(self, message: Message, now: float) -> None:
        self._ready.append((now, message))
        self._drop_excess()

    def _drop_excess(self) -> None:
        while len(self._ready) > _MOST_WAITING:
            self._ready.popleft()
            self._lost += 1

    def _next(self, now: float, *, everything: bool) -> Message:
        if everything and len(self._ready) > 1:
            message = _gather([each for _, each in self._ready])
            self._ready.clear()
        else:
            entered, message = self._ready.popleft()
            message = _add_line(message, _describe_delay(now - entered))
        lost, self._lost = self._lost, 0
        was = "was" if lost == 1 else "were"
        line = f"{count_noun(lost, 'message')} before this one {was} lost"
        return _add_line(message, line if lost else "")


def _gather(messages: list[Message]) -> Message:
    """Merge several messages into one message."""
    counts: dict[str, int] = {}
    for each in messages:
        title = ("over: " if each.is_over else "") + each.title
        counts[title] = counts.get(title, 0) + 1
    lines = [
        f"- {title}" + (f" ({count} times)" if count > 1 else "")
        for title, count in list(counts.items())[:_MOST_TITLES]
    ]
    if len(counts) > _MOST_TITLES:
        lines.append(f"- and {count_noun(len(counts) - _MOST_TITLES, 'other')}")
    worst = max(messages, key=lambda each: _RANKS[each.severity])
    return Message(
        title=count_noun(len(messages), "message"),
        text="\n".join(lines),
        severity=worst.severity,
        key="several",
        fields=worst.fields,
        is_over=all(each.is_over for each in messages),
    )


def _describe_held(number: int) -> str:
    return f"{number} more like this" if number else ""


def _describe_delay(seconds: float) -> str:
    return f"sent {format_duration(seconds)} late" if seconds >= _LATE_SECONDS else ""


def _add_line(message: Message, line: str) -> Message:
    return replace(message, text=f"{message.text}\n({line})".lstrip("\n")) if line else message
