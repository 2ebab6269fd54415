"""A run as it is found after its end: its starts, the one that tells the most, and its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainvitals.runfile import ABSENT, EVENT_COUNT, EVENTS, STATE, STEP, Identity, Record
from trainvitals.sources.training.attempts import Losses
from trainvitals.sources.training.endings import REASONS as ENDING_REASONS
from trainvitals.sources.training.endings import Ending
from trainvitals.sources.training.liveness import Liveness
from trainvitals.sources.training.rates import Progress, Rates
from trainvitals.sources.training.stalls import Cause

Reason = Literal["finished", "exception", "signal", "oom", "unknown", "running"]
REASONS: tuple[Reason, ...] = (*ENDING_REASONS, "running")
WELL: tuple[Reason, ...] = ("finished", "running")

# Ranks that die so close together die of one cause: a death by signal is known only as well as the
# exporter looks, and a launcher gives the others some seconds.
_TOGETHER_SECONDS = 20.0
# SIGHUP, SIGINT and SIGTERM: what a launcher sends to the ranks that are left.
_ASKED_TO_END = frozenset({1, 2, 15})
_MOST_TIME, _MOST_COUNT = 4e9, 1e15
_MOST_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class Event:
    """One of the last events of a rank.

    Attributes:
        time: Unix seconds.
        name: One of `runfile.EVENTS`.
        value: What belongs to it: the epoch's or the checkpoint's step number, the loss of a spike,
            the number of an alert.
    """

    time: float
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one rank: a process, and the run file that it left.

    Attributes:
        run: The run's name, fit to be shown.
        attempt: The launcher's count, or one more than the attempt before by the same rank.
        identity: Who wrote the file.
        record: What it last told.
        liveness: Whether its process lives.
        ending: How it ended; None while it lives.
        is_end_seen: Whether the time of the end is known, by its own word or because the exporter
            was there; else it is when the rank was last heard of.
        stall: Why it does not get on, while it lives; None when it does.
        phase: What it did at the end, or does now; None unknown.
        phase_seconds: For how long; None unknown.
        progress_age_seconds: How long before its end, or before now, it last got on; None unknown.
        rates: How fast it trained.
        progress: How far it came.
    """

    run: str
    attempt: int
    identity: Identity
    record: Record
    liveness: Liveness
    ending: Ending | None
    is_end_seen: bool
    stall: Cause | None
    phase: str | None
    phase_seconds: float | None
    progress_age_seconds: float | None
    rates: Rates
    progress: Progress

    @property
    def rank(self) -> int:
        """The process's rank."""
        return self.identity.rank

    @property
    def reason(self) -> Reason:
        """How it ended, in one word."""
        return "running" if self.ending is None else self.ending.reason

    @property
    def static(self) -> Mapping[str, str]:
        """What describes it, as far as it is text, and fit to be shown."""
        return {
            clean_text(name): clean_text(value)
            for name, value in self.identity.static.items()
            if isinstance(value, str)
        }

    def value(self, name: str) -> float | None:
        """Give a word of its record, which may be NaN; None where it is unknown."""
        word = self.record.step[STEP[name]] if name in STEP else self.record.state[STATE[name]]
        return None if word == ABSENT else word

    def count(self, name: str) -> int | None:
        """Give a word that counts; None where it is unknown or makes no sense."""
        value = self.value(name)
        return int(value) if value is not None and 0 <= value < _MOST_COUNT else None

    def seconds(self, name: str) -> float | None:
        """Give a duration or a Unix time; None where it is unknown, not positive or no number."""
        value = self.value(name)
        return value if value is not None and 0 < value < _MOST_TIME else None

    def list_events(self) -> tuple[Event, ...]:
        """Give the last events, the oldest first; what makes no sense is left out."""
        found = []
        for slot in range(EVENT_COUNT):
            time, code = self.seconds(f"event_time_{slot}"), self.count(f"event_code_{slot}")
            if time is not None and code is not None and 0 < code < len(EVENTS):
                found.append(Event(time, EVENTS[code], self.value(f"event_value_{slot}") or 0.0))
        return tuple(sorted(found, key=lambda event: event.time))

    def find_checkpoint(self) -> int | None:
        """Give the step of the last checkpoint; None where none is among the last events."""
        steps = [event.value for event in self.list_events() if event.name == "checkpoint"]
        return int(steps[-1]) if steps and 0 <= steps[-1] < _MOST_COUNT else None


@dataclass(frozen=True, slots=True)
class Run:
    """A run, with all its starts whose files are still there.

    Attributes:
        name: Its name, fit to be shown.
        starts: Every start, by attempt and rank; at least one.
        losses: What its restarts have cost.
    """

    name: str
    starts: tuple[Start, ...]
    losses: Losses

    @property
    def current(self) -> tuple[Start, ...]:
        """The starts of the last attempt, and what still lives of those before."""
        latest = max(start.attempt for start in self.starts)
        return tuple(
            start for start in self.starts if start.attempt == latest or start.ending is None
        )

    @property
    def has_attempts(self) -> bool:
        """Whether it was started again."""
        return any(start.attempt for start in self.starts)

    @property
    def ranks_alive(self) -> int:
        """How many processes live here."""
        return sum(start.ending is None for start in self.starts)

    @property
    def world_size(self) -> int | None:
        """How many ranks there are on all machines; None unknown."""
        sizes = [start.identity.world_size for start in self.current]
        return max(sizes) if max(sizes) > 0 else None

    @property
    def reason(self) -> Reason:
        """The verdict on the last attempt: a rank that ended badly goes before those that live."""
        first = find_first(self.current)
        if first is not None:
            return first.reason
        return "running" if self.ranks_alive else "finished"

    @property
    def telling(self) -> Start:
        """The start that tells the most: the first to end badly, in the last attempt that did."""
        first = find_first(self.current)
        if first is not None:
            return first
        stalled = [start for start in self.current if start.stall is not None]
        if stalled:
            return stalled[0]
        if self.ranks_alive:
            ended = [start for start in self.starts if start.reason not in WELL]
            latest = max((start.attempt for start in ended), default=0)
            first = find_first([start for start in ended if start.attempt == latest])
        return first or self.current[0]

    @property
    def ended_time(self) -> float | None:
        """When the last of its processes ended, Unix seconds; None while the run goes on."""
        if self.reason == "running":
            return None
        ends = [start.ending.time for start in self.current if start.ending is not None]
        return max(ends, default=None)


def find_first(starts: tuple[Start, ...] | list[Start]) -> Start | None:
    """Find the start with which the end began; None where none ended badly.

    Of those that ended at about the same time it is the one with the most telling reason: what
    the kernel says of it, then an exception, then silence, then a signal that asks to end.
    """
    ends = [
        (start.ending.time, start)
        for start in starts
        if start.ending is not None and start.ending.reason not in WELL
    ]
    if not ends:
        return None
    until = min(time for time, _ in ends) + _TOGETHER_SECONDS
    together = [(_weigh(start), time, start.rank, start) for time, start in ends if time <= until]
    return min(together, key=lambda entry: entry[:3])[-1]


def _weigh(start: Start) -> int:
    if start.ending is None:
        return len(REASONS)
    if start.ending.signal in _ASKED_TO_END:
        return len(REASONS)
    return ("oom", "signal", "exception", "unknown", "finished").index(start.ending.reason)


def is_length(seconds: float) -> bool:
    """Tell whether a number can be how long something took, in seconds."""
    return math.isfinite(seconds) and 0 <= seconds < _MOST_TIME


def is_well(run: Run) -> bool:
    """Tell whether a run finished or goes on, with no rank of its last attempt that ended badly."""
    return run.reason in WELL


def clean_text(text: str) -> str:
    """Make a text that somebody left fit to be shown: printable, and at most 128 characters."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in text)
    return clean[:_MOST_CHARACTERS]
