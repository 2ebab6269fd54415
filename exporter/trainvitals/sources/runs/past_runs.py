"""A run after its end: its starts, the most relevant start, and how the run ended."""

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

# Ranks that end within this time have the same cause: an end by a signal is dated by the exporter's
# readings, and a launcher gives the other ranks some seconds to end.
_TOGETHER_SECONDS = 20.0
# SIGHUP, SIGINT and SIGTERM, which a launcher sends to the remaining ranks.
_ASKED_TO_END = frozenset({1, 2, 15})
LONGEST_TEXT = 128


@dataclass(frozen=True, slots=True)
class Event:
    """One of a rank's last events.

    Attributes:
        time: The time of the event, in Unix seconds.
        name: One of `runfile.EVENTS`.
        value: The event's number: the number of the epoch, the step of the checkpoint, the loss of
            the spike, or the number of the alert.
    """

    time: float
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one rank: a process, and the run file that it wrote.

    Attributes:
        run: The run's name as text for display, made unique among users by `RunNames`.
        attempt: The launcher's count, but at least one more than the rank's previous attempt.
        identity: The process that wrote the file.
        record: The last record in the file.
        liveness: The liveness of the process.
        ending: How the process ended; None while it is alive.
        is_end_seen: Whether the end time is known, from the record or because the exporter saw the
            end; otherwise, the end time is the time at which the rank last wrote a record.
        stall: Why the living rank makes no progress; None if it makes progress or has ended.
        phase: The current phase, or the phase at the end; None if unknown.
        phase_seconds: The time spent in that phase; None if unknown.
        progress_age_seconds: The time from the last progress to the end or to now; None if unknown.
        rates: The training speed.
        progress: The training progress.
        made_time: When the file was created, according to the kernel, in Unix seconds.
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
        """The reason for the ending, or `running`."""
        return "running" if self.ending is None else self.ending.reason

    @property
    def static(self) -> Mapping[str, str]:
        """The text values of the static description, cleaned for display."""
        return {
            clean_text(name, most=LONGEST_TEXT): clean_text(value, most=LONGEST_TEXT)
            for name, value in self.identity.static.items()
            if isinstance(value, str)
        }

    def value(self, name: str) -> float | None:
        """Return a word of the record, which may be NaN; None if it is unknown."""
        word = self.record.step[STEP[name]] if name in STEP else self.record.state[STATE[name]]
        return None if word == ABSENT else word

    def count(self, name: str) -> int | None:
        """Return a counter word; None if it is unknown or invalid."""
        return read_count(self.value(name))

    def seconds(self, name: str) -> float | None:
        """Return a duration or a Unix time; None if it is unknown, not positive or not a number."""
        return read_time(self.value(name))

    def list_events(self) -> tuple[Event, ...]:
        """Return the last events, the oldest first; invalid events are left out."""
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
        name: The run's name as text for display.
        starts: All starts, sorted by attempt and rank; at least one.
        losses: The steps and time lost because of restarts.
    """

    name: str
    starts: tuple[Start, ...]
    losses: Losses

    @property
    def current(self) -> tuple[Start, ...]:
        """The starts of the last attempt, and earlier starts that are still alive."""
        latest = max(start.attempt for start in self.starts)
        return tuple(
            start for start in self.starts if start.attempt == latest or start.ending is None
        )

    @property
    def has_attempts(self) -> bool:
        """Whether the run was restarted."""
        return any(start.attempt for start in self.starts)

    @property
    def ranks_alive(self) -> int:
        """The number of ranks that are alive on this machine."""
        return sum(start.ending is None for start in self.starts)

    @property
    def world_size(self) -> int | None:
        """The number of ranks on all machines; None if unknown."""
        sizes = [start.identity.world_size for start in self.current]
        return max(sizes) if max(sizes) > 0 else None

    @property
    def reason(self) -> Reason:
        """The result of the last attempt; a failed rank takes precedence over living ranks."""
        first = find_first(self.current)
        if first is not None:
            return first.reason
        return "running" if self.ranks_alive else "finished"

    @property
    def telling(self) -> Start:
        """The most relevant start: the first to fail in the last attempt that failed."""
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
        """When the run's last process ended, in Unix seconds; None while the run continues."""
        if self.reason == "running":
            return None
        ends = [start.ending.time for start in self.current if start.ending is not None]
        return max(ends, default=None)


def find_first(starts: tuple[Start, ...] | list[Start]) -> Start | None:
    """Return the start that caused the end of the run; None if no start failed.

    Of the starts that ended at about the same time, it is the one with the most specific reason: a
    kernel report, then an exception, then an unknown end, then a signal that requests the end.
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
