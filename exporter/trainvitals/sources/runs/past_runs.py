"""A run as read from its run files: its starts, the most relevant start, and how it ended."""

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
from trainvitals.sources.runs.launches import Launch
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.rates import Progress, Rates
from trainvitals.sources.runs.stalls import Cause

Reason = Literal["finished", "exception", "signal", "oom", "unknown", "running"]
REASONS: tuple[Reason, ...] = (*ENDING_REASONS, "running")
WELL: tuple[Reason, ...] = ("finished", "running")

# Ranks that end within this time are assumed to have ended for the same cause. An end by a signal
# is noticed only at the exporter's next reading, and a launcher gives the remaining ranks some
# seconds to end.
_TOGETHER_SECONDS = 20.0
# SIGHUP, SIGINT and SIGTERM, which a launcher sends to the remaining ranks.
_ASKED_TO_END = frozenset({1, 2, 15})
LONGEST_TEXT = 128


@dataclass(frozen=True, slots=True)
class Event:
    """One of the last events that a rank recorded.

    Attributes:
        time: The time when the event was recorded, in Unix seconds.
        name: The name of the event, which is one of `runfile.EVENTS`.
        value: The number that was recorded with the event: the number of the epoch, the step of the
            checkpoint, the loss of the spike, or the number of the alert.
    """

    time: float
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one rank: a process, and the run file that the process wrote.

    Attributes:
        run: The run's name for display, made unique among users by `RunNames`.
        attempt: The number of the attempt, as counted by the launcher, but at least one more than
            the rank's previous attempt.
        identity: The identity of the process that wrote the run file.
        record: The last record in the run file.
        liveness: The liveness of the process that wrote the run file.
        ending: How the process ended; None while the process is alive.
        is_end_seen: Whether the end time is known, from the record or because the exporter saw the
            end. Otherwise, the end time is the time at which the rank last wrote a record.
        stall: The reason why a living rank makes no progress; None if the rank makes progress or
            has ended.
        phase: The rank's current phase, or the phase at the rank's end; None if the phase is
            unknown.
        phase_seconds: The time spent in `phase`, in seconds; None if that time is unknown.
        progress_age_seconds: The time from the rank's last progress to the rank's end or to the
            reading, in seconds; None if that time is unknown.
        rates: The rank's training speed.
        progress: The rank's training progress.
        made_time: The time when the run file was created, according to the kernel, in Unix seconds.
        launch: The launch by `trainvitals run` below which the process ran; None if no such launch
            is known.
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
    launch: Launch | None = None

    @property
    def rank(self) -> int:
        """The rank of the process."""
        return self.identity.rank

    @property
    def reason(self) -> Reason:
        """The reason for the rank's ending, or `running` while the rank is alive."""
        return "running" if self.ending is None else self.ending.reason

    @property
    def static(self) -> Mapping[str, str]:
        """The texts in the run file's static description, cleaned for display."""
        return {
            clean_text(name, most=LONGEST_TEXT): clean_text(value, most=LONGEST_TEXT)
            for name, value in self.identity.static.items()
            if isinstance(value, str)
        }

    def value(self, name: str) -> float | None:
        """Return a value of the last record, which may be NaN; None if the value is unknown."""
        word = self.record.step[STEP[name]] if name in STEP else self.record.state[STATE[name]]
        return None if word == ABSENT else word

    def count(self, name: str) -> int | None:
        """Return a counter of the last record; None if the counter is unknown or invalid."""
        return read_count(self.value(name))

    def seconds(self, name: str) -> float | None:
        """Return a duration or Unix time of the last record.

        The result is None if the value is unknown, not positive or not a number.
        """
        return read_time(self.value(name))

    def list_events(self) -> tuple[Event, ...]:
        """Return the rank's last events, the oldest first; invalid events are left out."""
        found = []
        for slot in range(EVENT_COUNT):
            time, code = self.seconds(f"event_time_{slot}"), self.count(f"event_code_{slot}")
            if time is not None and code is not None and 0 < code < len(EVENTS):
                found.append(Event(time, EVENTS[code], self.value(f"event_value_{slot}") or 0.0))
        return tuple(sorted(found, key=lambda event: event.time))

    def find_checkpoint(self) -> int | None:
        """Return the step of the last checkpoint; None if the last events contain no checkpoint."""
        steps = [event.value for event in self.list_events() if event.name == "checkpoint"]
        return read_count(steps[-1]) if steps else None


@dataclass(frozen=True, slots=True)
class Run:
    """A training run, with all starts whose run files still exist.

    Attributes:
        name: The name of the run, for display.
        starts: All starts of the run, sorted by attempt and rank; there is at least one start.
        losses: The steps and time that the run lost because of restarts.
    """

    name: str
    starts: tuple[Start, ...]
    losses: Losses

    @property
    def current(self) -> tuple[Start, ...]:
        """The starts of the run's last attempt, and earlier starts that are still alive."""
        latest = max(start.attempt for start in self.starts)
        return tuple(
            start for start in self.starts if start.attempt == latest or start.ending is None
        )

    @property
    def has_attempts(self) -> bool:
        """Whether the run was restarted, so that it has several attempts."""
        return any(start.attempt for start in self.starts)

    @property
    def ranks_alive(self) -> int:
        """The number of the run's ranks that are alive on this machine."""
        return sum(start.ending is None for start in self.starts)

    @property
    def world_size(self) -> int | None:
        """The number of the run's ranks on all machines; None if the number is unknown."""
        sizes = [start.identity.world_size for start in self.current]
        return max(sizes) if max(sizes) > 0 else None

    @property
    def reason(self) -> Reason:
        """The reason why the run's last attempt ended, or `running`.

        A failed rank takes precedence over living ranks.
        """
        first = find_first(self.current)
        if first is not None:
            return first.reason
        return "running" if self.ranks_alive else "finished"

    @property
    def telling(self) -> Start:
        """The start that best explains the state of the run.

        It is the first of these starts that exists:

        1. The start whose failure ended the last attempt.
        2. A stalled start of the last attempt.
        3. If ranks are alive, the start whose failure ended the latest failed attempt.
        4. The first start of the last attempt.
        """
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
        """The Unix time when the run's last process ended; None while the run continues."""
        if self.reason == "running":
            return None
        ends = [start.ending.time for start in self.current if start.ending is not None]
        return max(ends, default=None)


def find_first(starts: tuple[Start, ...] | list[Start]) -> Start | None:
    """Return the start that caused the end of the run; None if no start failed.

    If several starts ended at about the same time, the start with the most specific reason is
    returned. The order is an OOM kill, another signal, an exception, an unknown reason, and last a
    signal with which a launcher ends ranks.
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
    """Return whether a run finished or continues, and no rank of the last attempt failed."""
    return run.reason in WELL
