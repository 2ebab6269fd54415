"""The state of each container, from the container's creation until its series are dropped."""

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
    """One start of a container, from the event `create` or `start` until the container ends.

    Attributes:
        started: The time when the container started; None if the container has not started.
        log_since: The time from which log lines belong to this start; None if all lines belong to
            this start.
        events: The engine's events of this start, the oldest first.
        heard_since: The time from which events were followed; `-inf` if all events were followed.
        is_found: Whether a query found the start; False if an event reported the start.
        pid: The main process's PID on the host, even after the process has exited; None if the PID
            is unknown.
        cgroup: The control group's path in the format of `/proc/PID/cgroup`; empty if the path is
            unknown.
        usage: The latest sample of the control group; None before the first sample.
        host_oom_kills: The host's OOM kill count at the latest sample; None if the count was not
            read.
        oom_kills: The control group's OOM kill count at the latest sample.
        ended: The time when the container ended; None if the container has not ended.
        is_over: Whether the end of this start is being handled or has been handled.
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
        """Whether the container was started and is not known to have ended."""
        return self.started is not None and not self.is_over


@dataclass(slots=True)
class ContainerState:
    """The state kept for one container name; a new container with the name continues the state.

    Attributes:
        name: The name of the container.
        id: The ID of the newest container with this name.
        image: The name of the container's image.
        compose_project: The container's Compose project; empty if the container belongs to no
            project.
        compose_service: The container's Compose service; empty if the container belongs to no
            service.
        status: The container's state; None if no engine is queried or the state is unknown.
        health: The result of the container's health check; None if the container has no health
            check.
        inspection: The engine's latest inspection of the container; None before the first
            inspection.
        pid: The main process's PID on the host; None if the container is not running or the PID is
            unknown.
        attempt: The newest start of the container.
        ending: The data about the container's last end; None if the container has not ended.
        event_count: The number of events received about the container. If this number has changed
            since a request, the answer to the request may be outdated.
        starts: The number of the container's starts since the exporter first observed the
            container.
        restarts: The number of the container's restarts; None if the number is unknown.
        deaths: The number of the container's exits, by reason.
        last_death: The container's last exit; None if no exit is known.
        earlier: The times of the container's earlier exits, the oldest first.
        oom_kills: The number of OOM kills in the container, by the source that reported the kills.
        accelerators: The accelerators that the container's processes use.
        removed: The time when the container was removed; None while the container exists.
        changed: The time of the last change of the container's state.
        successor: The state with the same name that continues this state's counts; None if this
            state contains the current counts.
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
        """The state with the current counts, which is the last in the chain of successors."""
        known = self
        while known.successor is not None:
            known = known.successor
        return known

    def take_settings(self, inspection: Inspection) -> None:
        """Update the inspection, the image and the Compose labels.

        The restart count is updated only if it is unknown.
        """
        self.inspection = inspection
        self.image = inspection.image or self.image
        self.compose_project = inspection.compose_project or self.compose_project
        self.compose_service = inspection.compose_service or self.compose_service
        # Later restarts are counted from events, because an inspection can precede the events.
        if self.restarts is None:
            self.restarts = inspection.restart_count or 0

    def take_state(self, inspection: Inspection) -> None:
        """Update the container's state from an inspection.

        If the inspection shows a start and the event of this start has not arrived yet, the
        inspection is ignored.
        """
        status = name_status(inspection.state.status)
        if self.attempt.is_over and status in {"running", "paused"}:
            return
        self.status = status or self.status
        self.health = name_health(inspection.state.health)
        self.pid = inspection.pid
        self.attempt.pid = inspection.pid or self.attempt.pid

    def end(self, at: float) -> None:
        """Record that the container ended at the given time."""
        self.attempt.is_over = True
        self.attempt.ended = at
        if self.status not in {"created", None}:
            self.status = "exited"
        self.health = self.pid = None
        self.accelerators = ()

    def absorb(self, other: ContainerState) -> None:
        """Continue the counts of an earlier container with the same name."""
        self.deaths += other.deaths
        self.oom_kills.update(other.oom_kills)
        self.restarts = (self.restarts or 0) + (other.restarts or 0)
        self.earlier.extend(sorted([*other.earlier, *self.earlier]))
        if other.last_death is not None:
            self.take_death(other.last_death)
        other.successor = self

    def take_death(self, death: Death) -> None:
        """Record the container's last exit, unless a later exit is already known."""
        if self.last_death is None or self.last_death.time <= death.time:
            self.last_death = death

    def count_oom_kills(self, channel: Channel, number: int = 1) -> None:
        """Count OOM kills in the container that a source reported."""
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
    """The data about a container's end, from the event to the verdict.

    Attributes:
        known: The state of the container.
        attempt: The start of the container to which the end belongs.
        time: The time when the container ended, according to the engine's clock.
        exit_code: The container's exit code; None if the exit code is unknown.
        is_witnessed: Whether an event reported the container's end.
        container: The container's ID at the end.
        inspection: The engine's inspection after the end, or the last inspection before the end;
            None if neither inspection is available.
        state: The engine's state of the container after the end; None if the engine could not be
            queried or the container is running again.
        log: The container's last log lines; None if the lines could not be read.
        gaps: The sources of evidence that could not be read.
        earlier: The times of the container's earlier exits.
        is_fetched: Whether all available evidence about the end was fetched.
        is_judged: Whether the evaluation of the evidence has started.
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
    """Return the state to export for an engine's container state; None if the state is unknown.

    For example, the engine's states `removing`, `dead` and `stopped` are exported as `exited`.
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
    """Return the health to export for an engine's health status.

    The result is None if the container has no health check or the status is unknown.
    """
    match health:
        case "starting" | "healthy" | "unhealthy":
            return health
        case _:
            return None


def choose_shown(known: Iterable[ContainerState], most: int) -> tuple[list[ContainerState], int]:
    """Choose the containers to export.

    Running containers are chosen first, then the most recently changed containers.

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
