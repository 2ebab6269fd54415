"""The state that is kept of each container from its creation until its series are dropped."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainvitals.sources.accelerators.reading import Identity
from trainvitals.sources.containers.evidence import EngineEvent, Gap, State
from trainvitals.sources.containers.inspection import Inspection
from trainvitals.sources.containers.reading import Channel, Death, Health, Status, Usage

_MOST_EVENTS = 64
_MOST_EARLIER = 16
CHANNELS: tuple[Channel, ...] = ("event", "cgroup", "kernel")


@dataclass(slots=True)
class Attempt:
    """One start of a container, from `create` or `start` to its end.

    Attributes:
        started: When it started; None while it has not.
        log_since: The time from which its log belongs to this start; None for all of it.
        events: The engine's events, the oldest first.
        heard_since: The time from which its events were followed; `-inf` for all.
        is_found: Whether it was found by a query, without an event.
        pid: Its first process on the host, also when that has ended; None if unknown.
        cgroup: Its control group, as `/proc/PID/cgroup` has it; empty if unknown.
        usage: The latest sample of its control group.
        host_oom_kills: The host's count of OOM kills at that sample; None if it was not read.
        oom_kills: The count of its control group at that sample.
        ended: When it ended; None while it has not.
        is_over: Whether its end is being or has been handled.
    """

    started: float | None = None
    log_since: float | None = None
    events: deque[EngineEvent] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    heard_since: float = -math.inf
    is_found: bool = False
    pid: int | None = None
    cgroup: str = ""
    usage: Usage | None = None
    host_oom_kills: int | None = None
    oom_kills: int = 0
    ended: float | None = None
    is_over: bool = False

    @property
    def is_running(self) -> bool:
        """Whether it was started and no end of it is known."""
        return self.started is not None and not self.is_over


@dataclass(slots=True)
class ContainerState:
    """A container by its name; a new one of the same name continues its counts.

    Attributes:
        name: Its name.
        id: The ID of the newest container of that name.
        image: Its image's name.
        compose_project: Its Compose project.
        compose_service: Its Compose service.
        status: Its state; None if no engine is asked.
        health: The result of its health check.
        inspection: The engine's latest inspection.
        pid: Its first process on the host; None if it does not run or that is not known.
        attempt: Its newest start.
        ending: The handling of its last end; None if it has not ended.
        event_count: The number of its events: an answer that was asked for before the last of
            them may be outdated.
        starts: The number of its starts since it was first seen.
        restarts: The number of its restarts.
        deaths: The number of its deaths by reason.
        last_death: Its last end.
        earlier: The times of its earlier deaths, the oldest first.
        oom_kills: OOM kills by the source that reported them.
        accelerators: The accelerators that its processes hold.
        removed: When it was removed; None while it exists.
        changed: When its state last changed.
        successor: The container of the same name that continues its counts; None if there is none.
    """

    name: str
    id: str
    image: str = ""
    compose_project: str = ""
    compose_service: str = ""
    status: Status | None = None
    health: Health | None = None
    inspection: Inspection | None = None
    pid: int | None = None
    attempt: Attempt = field(default_factory=Attempt)
    ending: Ending | None = None
    event_count: int = 0
    starts: int = 0
    restarts: int | None = None
    deaths: Counter[str] = field(default_factory=Counter)
    last_death: Death | None = None
    earlier: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_EARLIER))
    oom_kills: Counter[Channel] = field(default_factory=lambda: Counter(dict.fromkeys(CHANNELS, 0)))
    accelerators: tuple[Identity, ...] = ()
    removed: float | None = None
    changed: float = 0.0
    successor: ContainerState | None = None

    @property
    def newest(self) -> ContainerState:
        """The state that has the counts now; see `successor`."""
        known = self
        while known.successor is not None:
            known = known.successor
        return known

    def take_settings(self, inspection: Inspection) -> None:
        """Update it from the engine's inspection."""
        self.inspection = inspection
        self.image = inspection.image or self.image
        self.compose_project = inspection.compose_project or self.compose_project
        self.compose_service = inspection.compose_service or self.compose_service
        # From then on events count starts; an answer can be ahead of the events.
        if self.restarts is None:
            self.restarts = inspection.restart_count or 0

    def take_state(self, inspection: Inspection) -> None:
        """Update the state from an inspection, unless the event of its start has not arrived yet."""
        status = name_status(inspection.state.status)
        if self.attempt.is_over and status in {"running", "paused"}:
            return
        self.status = status or self.status
        self.health = name_health(inspection.state.health)
        self.pid = inspection.pid
        self.attempt.pid = inspection.pid or self.attempt.pid

    def end(self, at: float) -> None:
        """Record that it has ended."""
        self.attempt.is_over = True
        self.attempt.ended = at
        if self.status not in {"created", None}:
            self.status = "exited"
        self.health = self.pid = None
        self.accelerators = ()

    def absorb(self, other: ContainerState) -> None:
        """Continue the counts of a container that had the name before."""
        self.deaths += other.deaths
        self.oom_kills.update(other.oom_kills)
        self.restarts = (self.restarts or 0) + (other.restarts or 0)
        self.earlier.extend(sorted([*other.earlier, *self.earlier]))
        if other.last_death is not None:
            self.take_death(other.last_death)
        other.successor = self

    def take_death(self, death: Death) -> None:
        """Set the verdict, unless the container has ended again since."""
        if self.last_death is None or self.last_death.time <= death.time:
            self.last_death = death

    def count_oom_kills(self, channel: Channel, number: int = 1) -> None:
        """Count OOM kills that a source reported."""
        self.oom_kills[channel] += number

    def take_usage(self, usage: Usage, host_oom_kills: int | None) -> None:
        """Update it from a sample of its control group."""
        attempt = self.attempt
        if usage.oom_kills is not None:
            if usage.oom_kills > attempt.oom_kills:
                self.count_oom_kills("cgroup", usage.oom_kills - attempt.oom_kills)
            attempt.oom_kills = usage.oom_kills
        attempt.usage = usage
        attempt.host_oom_kills = host_oom_kills


@dataclass(slots=True)
class Ending:
    """The end of one start of a container, from the event to the verdict.

    Attributes:
        known: The container.
        attempt: The start that ended.
        time: When it ended, by the engine's clock.
        exit_code: Its exit code; None if unknown.
        is_witnessed: Whether the event contained the exit code.
        container: Its ID at that time.
        inspection: The engine's inspection after the end, or the previous one.
        state: Its state after the end; None if it could not be asked, or runs again.
        log: Its last lines; None if they could not be read.
        gaps: The sources that could not be read.
        earlier: The times of its earlier deaths.
        is_fetched: Whether all available evidence was fetched.
        is_judged: Whether there is a verdict.
    """

    known: ContainerState
    attempt: Attempt
    time: float
    exit_code: int | None
    is_witnessed: bool
    container: str
    inspection: Inspection | None = None
    state: State | None = None
    log: tuple[str, ...] | None = None
    gaps: list[Gap] = field(default_factory=list)
    earlier: tuple[float, ...] = ()
    is_fetched: bool = False
    is_judged: bool = False


def name_status(status: str) -> Status | None:
    """Return the state for the metric: `removing`, `dead` and `stopped` are ways to be `exited`."""
    match status:
        case "created" | "running" | "paused" | "restarting" | "exited":
            return status
        case "configured" | "initialized":
            return "created"
        case "removing" | "dead" | "stopped" | "stopping":
            return "exited"
        case _:
            return None


def name_health(health: str | None) -> Health | None:
    """Return the health for the metric; None if there is no health check."""
    match health:
        case "starting" | "healthy" | "unhealthy":
            return health
        case _:
            return None


def choose_shown(known: Iterable[ContainerState], most: int) -> tuple[list[ContainerState], int]:
    """Choose the containers to export: running ones first, then those that changed last.

    Returns:
        The chosen containers, and the number left out.
    """
    ranked = sorted(
        known,
        key=lambda each: (
            each.removed is None and each.status in (None, "running", "paused", "restarting"),
            each.changed,
        ),
        reverse=True,
    )
    return sorted(ranked[:most], key=lambda each: each.name), max(0, len(ranked) - most)
