"""A run after its end: its starts, the most relevant one, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainvitals.foreign_numbers import read_count, read_time
from trainvitals.foreign_text import clean_text
from trainvitals.runfile import ABSENT, EVENT_COUNT, EVENTS, STATE, STEP, Identity, Record
from trainvitals.sources.runs.attempts import Losses
from trainvitals.sources.runs.endings import REASONS as ENDING_REASONS
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.rates import Progress, Rates
from trainvitals.sources.runs.stalls import Cause

Reason = Literal["finished", "exception", "signal", "oom", "unknown", "running"]
REASONS: tuple[Reason, ...] = (*ENDING_REASONS, "running")
WELL: tuple[Reason, ...] = ("finished", "running")

# Ranks that die so close together die of one cause: a death by signal is dated by the exporter's
# readings, and a launcher leaves the other ranks some seconds to end.
_TOGETHER_SECONDS = 20.0
# SIGHUP, SIGINT and SIGTERM: what a launcher sends to the ranks that are left.
_ASKED_TO_END = frozenset({1, 2, 15})
LONGEST_TEXT = 128


@dataclass(frozen=True, slots=True)
class Event:
    """One of the last events of a rank.

    Attributes:
        time: Unix seconds.
        name: One of `runfile.EVENTS`.
        value: A number of the event: the epoch's number, the checkpoint's step, the loss of a
            spike, the number of an alert.
    """

    time: float
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one rank: a process, and the run file that it left.

    Attributes:
        run: The run's name as text that can be shown, as `RunNames` tells those of two users apart.
        attempt: The launcher's count, or one more than the attempt before by the same rank.
        identity: The process that wrote the file.
        record: The last record in it.
        liveness: Whether its process lives.
        ending: How it ended; None while it lives.
        is_end_seen: Whether the time of the end is known, from its record or because the exporter
            saw it; else it is when the rank last wrote a record.
        stall: Why it makes no progress, while it lives; None if it does.
        phase: The phase now or at the end; None if unknown.
        phase_seconds: The time in that phase; None if unknown.
        progress_age_seconds: The time since its last progress, up to its end or to now; None if
            unknown.
        rates: Its speed of training.
        progress: Its progress.
        made_time: When the file was made, as the kernel tells, Unix seconds.
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
    made_time: float

    @property
    def rank(self) -> int:
        """The process's rank."""
        return self.identity.rank

    @property
    def reason(self) -> Reason:
        """The ending, in one word."""
        return "running" if self.ending is None else self.ending.reason

    @property
    def static(self) -> Mapping[str, str]:
        """The static description, as far as it is text, and safe to show."""
        return {
            clean_text(name, most=LONGEST_TEXT): clean_text(value, most=LONGEST_TEXT)
            for name, value in self.identity.static.items()
            if isinstance(value, str)
        }

    def value(self, name: str) -> float | None:
        """Return a word of its record, which may be NaN; None if it is unknown."""
        word = self.record.step[STEP[name]] if name in STEP else self.record.state[STATE[name]]
        return None if word == ABSENT else word

    def count(self, name: str) -> int | None:
        """Return a counter word; None if it is unknown or invalid."""
        return read_count(self.value(name))

    def seconds(self, name: str) -> float | None:
        """Return a duration or a Unix time; None if it is unknown, not positive or no number."""
        return read_time(self.value(name))

    def list_events(self) -> tuple[Event, ...]:
        """Return the last events, the oldest first; invalid ones are left out."""
        found = []
        for slot in range(EVENT_COUNT):
            time, code = self.seconds(f"event_time_{slot}"), self.count(f"event_code_{slot}")
            if time is not None and code is not None and 0 < code < len(EVENTS):
                found.append(Event(time, EVENTS[code], self.value(f"event_value_{slot}") or 0.0))
        return tuple(sorted(found, key=lambda event: event.time))

    def find_checkpoint(self) -> int | None:
        """Return the step of the last checkpoint; None if none is among the last events."""
        steps = [event.value for event in self.list_events() if event.name == "checkpoint"]
        return read_count(steps[-1]) if steps else None


@dataclass(frozen=True, slots=True)
class Run:
    """A run, with all its starts whose files still exist.

    Attributes:
        name: Its name as text that can be shown.
        starts: Every start, by attempt and rank; at least one.
        losses: The steps and time that its restarts have lost.
    """

    name: str
    starts: tuple[Start, ...]
    losses: Losses

    @property
    def current(self) -> tuple[Start, ...]:
        """The starts of the last attempt, and those before that still live."""
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
        """The number of ranks that live on this machine."""
        return sum(start.ending is None for start in self.starts)

    @property
    def world_size(self) -> int | None:
        """The number of ranks on all machines; None if unknown."""
        sizes = [start.identity.world_size for start in self.current]
        return max(sizes) if max(sizes) > 0 else None

    @property
    def reason(self) -> Reason:
        """The verdict on the last attempt: a failed rank takes precedence over living ones."""
        first = find_first(self.current)
        if first is not None:
            return first.reason
        return "running" if self.ranks_alive else "finished"

    @property
    def telling(self) -> Start:
        """The most relevant start: the first to fail, in the last attempt that failed."""
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
        """When the last of its processes ended, Unix seconds; None while the run continues."""
        if self.reason == "running":
            return None
        ends = [start.ending.time for start in self.current if start.ending is not None]
        return max(ends, default=None)


def find_first(starts: tuple[Start, ...] | list[Start]) -> Start | None:
    """Find the start that caused the end of the run; None if none failed.

    Of those that ended at about the same time it is the one with the most specific reason: the
    kernel's report, then an exception, then an unknown end, then a signal that requests the end.
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


def is_well(run: Run) -> bool:
    """Return whether a run finished or continues, and no rank of its last attempt failed."""
    return run.reason in WELL
