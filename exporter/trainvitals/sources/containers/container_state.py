"""The state of each container, kept from its creation until its series are dropped."""

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
        started: When the container started; None if it has not started.
        log_since: The time from which the log belongs to this start; None for the whole log.
        events: The engine's events, the oldest first.
        heard_since: The time from which events were followed; `-inf` if all events were followed.
        is_found: Whether the start was found by a query, not reported by an event.
        pid: The main process's PID on the host, even after the process has exited; None if unknown.
        cgroup: The control group's path in the format of `/proc/PID/cgroup`; empty if unknown.
        usage: The latest sample of the control group; None before the first sample.
        host_oom_kills: The host's OOM kill count at the latest sample; None if it was not read.
        oom_kills: The control group's OOM kill count at the latest sample.
        ended: When the container ended; None if it has not ended.
        is_over: Whether the end is being handled or has been handled.
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
        """Whether the container was started and no end is known."""
        return self.started is not None and not self.is_over


@dataclass(slots=True)
class ContainerState:
    """The state kept under a container name; a new container of that name continues the counts.

    Attributes:
        name: The container's name.
        id: The ID of the newest container with this name.
        image: The image's name.
        compose_project: The Compose project; empty if there is none.
        compose_service: The Compose service; empty if there is none.
        status: The container's state; None if no engine is queried or the state is unknown.
        health: The result of the health check; None if there is no health check.
        inspection: The engine's latest inspection; None before the first inspection.
        pid: The main process's PID on the host; None if the container is not running or the PID is
            unknown.
        attempt: The newest start.
        ending: The handling of the last end; None if the container has not ended.
        event_count: The number of events received. An answer may be outdated if the number has
            changed since its request.
        starts: The number of starts since the container was first seen.
        restarts: The number of restarts; None if unknown.
        deaths: The number of deaths by reason.
        last_death: The last death; None if no death is known.
        earlier: The times of the earlier deaths, the oldest first.
        oom_kills: The number of OOM kills by the source that reported them.
        accelerators: The accelerators that the container's processes use.
        removed: When the container was removed; None while it exists.
        changed: When the container's state last changed.
        successor: The state under the same name that continues the counts; None if there is none.
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
        """The state that continues the counts; see `successor`."""
        known = self
        while known.successor is not None:
            known = known.successor
        return known

    def take_settings(self, inspection: Inspection) -> None:
        """Update the inspection, the image, the Compose labels and an unknown restart count."""
        self.inspection = inspection
        self.image = inspection.image or self.image
        self.compose_project = inspection.compose_project or self.compose_project
        self.compose_service = inspection.compose_service or self.compose_service
        # Later restarts are counted from events; an answer can be ahead of the events.
        if self.restarts is None:
            self.restarts = inspection.restart_count or 0

    def take_state(self, inspection: Inspection) -> None:
        """Update the state from an inspection.

        An inspection that shows a start whose event has not arrived yet is ignored.
        """
        status = name_status(inspection.state.status)
        if self.attempt.is_over and status in {"running", "paused"}:
            return
        self.status = status or self.status
        self.health = name_health(inspection.state.health)
        self.pid = inspection.pid
        self.attempt.pid = inspection.pid or self.attempt.pid

    def end(self, at: float) -> None:
        """Record that the container has ended."""
        self.attempt.is_over = True
        self.attempt.ended = at
        if self.status not in {"created", None}:
            self.status = "exited"
        self.health = self.pid = None
        self.accelerators = ()

    def absorb(self, other: ContainerState) -> None:
        """Continue the counts of another container that had the same name before."""
        self.deaths += other.deaths
        self.oom_kills.update(other.oom_kills)
        self.restarts = (self.restarts or 0) + (other.restarts or 0)
        self.earlier.extend(sorted([*other.earlier, *self.earlier]))
        if other.last_death is not None:
            self.take_death(other.last_death)
        other.successor = self

    def take_death(self, death: Death) -> None:
        """Set the last death, unless a later death is already known."""
        if self.last_death is None or self.last_death.time <= death.time:
            self.last_death = death

    def count_oom_kills(self, channel: Channel, number: int = 1) -> None:
        """Count OOM kills that a source reported."""
        self.oom_kills[channel] += number

    def take_usage(self, usage: Usage, host_oom_kills: int | None) -> None:
        """Update the usage and the OOM kill counts from a sample of the control group."""
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
        known: The container's state.
        attempt: The start that ended.
        time: When the container ended, according to the engine's clock.
        exit_code: The exit code; None if unknown.
        is_witnessed: Whether an event reported the end.
        container: The container's ID at the end.
        inspection: The engine's inspection after the end, or the previous inspection; None if
            neither is available.
        state: The engine's state of the container after the end; None if the engine could not be
            queried or the container is running again.
        log: The last log lines; None if they could not be read.
        gaps: The sources that could not be read.
        earlier: The times of the earlier deaths.
        is_fetched: Whether all available evidence was fetched.
        is_judged: Whether the evaluation has started.
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
    """Return the metric's state for an engine's state; None if the engine's state is not known.

    For example, `removing`, `dead` and `stopped` become `exited`.
    """
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
    """Return the metric's health for an engine's health; None if there is no health check."""
    match health:
        case "starting" | "healthy" | "unhealthy":
            return health
        case _:
            return None


def choose_shown(known: Iterable[ContainerState], most: int) -> tuple[list[ContainerState], int]:
    """Choose the containers to export: running containers first, then the most recently changed.

    Returns:
        The chosen containers sorted by name, and the number of omitted containers.
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
