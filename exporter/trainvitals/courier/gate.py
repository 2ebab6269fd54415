"""What a person is spared: the same thing again and again, and too much at once.

- **Deduplication.** After a message was let through, others of its key wait until `repeat_seconds`
  are over, and the last of them is told then, with how many there were. What is worse than the last that
  was told, and that it is over, is told at once.
- **Rate limit.** A bucket holds `burst` tokens and gets one each `refill_seconds`; a message takes
  one. With the last token goes all that waits, as one message.
- Nothing is left out silently: what found no room is counted, and the next message tells how many
  that were.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainvitals.courier.message import Message, Severity

_RANKS: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}
_MOST_WAITING, _MOST_KEYS, _MOST_TITLES = 100, 500, 10
_LATE_SECONDS = 90.0
_MINUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a person is told.

    Attributes:
        repeat_seconds: The same key is told so seldom.
        burst: So many messages may come at once.
        refill_seconds: After a burst one message comes in so many seconds.
    """

    repeat_seconds: float = 600.0
    burst: int = 5
    refill_seconds: float = 60.0


class TokenBucket:
    """Lets a number of things through at once, and then one in a while.

    Args:
        burst: How many at once.
        refill_seconds: How long each further one takes.
        now: The time at which it is full.
    """

    def __init__(self, burst: int, refill_seconds: float, now: float) -> None:
        self._burst, self._refill_seconds = burst, refill_seconds
        self._tokens, self._at = float(burst), now

    def take(self, now: float) -> bool:
        """Take a token; tell whether there was one."""
        if self.wait_seconds(now) > 0:
            return False
        self._tokens -= 1.0
        return True

    def wait_seconds(self, now: float) -> float:
        """Tell how long it takes until there is a token."""
        gained = max(0.0, now - self._at) / self._refill_seconds
        self._tokens = min(float(self._burst), self._tokens + gained)
        self._at = now
        # What is missing by rounding is not worth a wait.
        return max(0.0, (1.0 - self._tokens) * self._refill_seconds - 1e-6)

    @property
    def is_low(self) -> bool:
        """Whether the next one will have to wait."""
        return self._tokens < 1.0 - 1e-6


@dataclass(slots=True)
class _Known:
    """What was told of a key, until when others wait, and those that do."""

    told: Message
    until: float
    held: int = 0
    last: Message | None = None

    def is_news(self, message: Message) -> bool:
        if message.is_over != self.told.is_over:
            return message.is_over
        return _RANKS[message.severity] > _RANKS[self.told.severity]


class Gate:
    """Decides what is sent now, later, or together with others.

    Args:
        limits: How much a person is told.
        clock: Seconds that never go back.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._bucket = TokenBucket(limits.burst, limits.refill_seconds, clock())
        self._known: dict[str, _Known] = {}
        self._ready: deque[tuple[float, Message]] = deque()
        self._lost = 0

    def enter(self, message: Message) -> None:
        """Take a message in."""
        now = self._clock()
        self._review(now)
        known = self._known.get(message.key)
        if known is None:
            if len(self._known) < _MOST_KEYS:
                self._known[message.key] = _Known(message, now + self._limits.repeat_seconds)
            self._queue(message, now)
        elif known.is_news(message):
            known.told = message
            self._queue(_add_line(message, _describe_held(known.held)), now)
            known.held, known.last = 0, None
        else:
            known.held += 1
            known.last = message

    def count_lost(self, number: int) -> None:
        """Learn that messages found no room elsewhere."""
        self._lost += number

    def give_back(self, message: Message) -> None:
        """Take back a message that could not be sent, to be the next one."""
        self._ready.appendleft((self._clock(), message))
        self._bound()

    def take(self) -> Message | None:
        """Give what is to be sent now; None where nothing is."""
        now = self._clock()
        self._review(now)
        if not self._ready or not self._bucket.take(now):
            return None
        return self._leave(now, everything=self._bucket.is_low)

    def take_rest(self) -> Message | None:
        """Give all that waits, whatever the limits say, as one message; None where nothing does."""
        now = self._clock()
        for known in self._known.values():
            self._release(known, now)
        return self._leave(now, everything=True) if self._ready else None

    @property
    def wait_seconds(self) -> float | None:
        """How long until there may be something to take; None: not before something enters."""
        now = self._clock()
        if self._ready:
            return self._bucket.wait_seconds(now)
        dues = [known.until for known in self._known.values() if known.held]
        return max(0.0, min(dues) - now) if dues else None

    def _review(self, now: float) -> None:
        """Release what has waited long enough, and forget what is not repeated."""
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
        known.told = known.last
        known.held, known.last = 0, None
        known.until = now + self._limits.repeat_seconds
        self._queue(_add_line(known.told, line), now)

    def _queue(self, message: Message, now: float) -> None:
        self._ready.append((now, message))
        self._bound()

    def _bound(self) -> None:
        while len(self._ready) > _MOST_WAITING:
            self._ready.popleft()
            self._lost += 1

    def _leave(self, now: float, *, everything: bool) -> Message:
        if everything and len(self._ready) > 1:
            message = _gather([each for _, each in self._ready])
            self._ready.clear()
        else:
            entered, message = self._ready.popleft()
            message = _add_line(message, _describe_delay(now - entered))
        lost, self._lost = self._lost, 0
        return _add_line(message, f"{lost} messages before this one were lost" if lost else "")


def _gather(messages: list[Message]) -> Message:
    """Make one message of several."""
    counts: dict[str, int] = {}
    for each in messages:
        title = ("over: " if each.is_over else "") + each.title
        counts[title] = counts.get(title, 0) + 1
    lines = [
        f"- {title}" + (f" ({count} times)" if count > 1 else "")
        for title, count in list(counts.items())[:_MOST_TITLES]
    ]
    if len(counts) > _MOST_TITLES:
        lines.append(f"- and {len(counts) - _MOST_TITLES} others")
    worst = max(messages, key=lambda each: _RANKS[each.severity])
    return Message(
        title=f"{len(messages)} more messages",
        text="\n".join(lines),
        severity=worst.severity,
        key="several",
        fields=worst.fields,
        is_over=all(each.is_over for each in messages),
    )


def _describe_held(number: int) -> str:
    return f"{number} more like this" if number else ""


def _describe_delay(seconds: float) -> str:
    return f"told {seconds / _MINUTE_SECONDS:.0f} min late" if seconds >= _LATE_SECONDS else ""


def _add_line(message: Message, line: str) -> Message:
    return replace(message, text=f"{message.text}\n({line})".lstrip("\n")) if line else message
