"""What is kept of each container from its creation until its series go."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainvitals.causes.evidence import EngineEvent, Gap, State
from trainvitals.sources.accelerators.reading import Identity
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
        log_since: From when on its log is of this start; None for all of it.
        events: What the engine told, the oldest first.
        heard_since: From when on somebody listened; `-inf` where it was from the beginning.
        is_found: Whether the engine was asked for it, and did not tell of it.
        pid: Its first process on the host, also when that has ended; None where not known.
        cgroup: Its control group, as `/proc/PID/cgroup` has it; empty where not known.
        usage: The last look at its control group.
        host_oom_kills: The host's count of OOM kills at that look; None where it was not read.
        oom_kills: What its control group had counted at that look.
        ended: When it ended; None while it has not.
        is_over: Whether its end is being dealt with, or was.
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
class Known:
    """A container by its name; one that is made anew under it goes on with the counts.

    Attributes:
        name: Its name.
        id: The ID of the newest that had the name.
        image: Its image's name.
        compose_project: Its Compose project.
        compose_service: Its Compose service.
        status: What it does; None where no engine is asked.
        health: What its health check says.
        inspection: What the engine last said of it.
        pid: Its first process on the host; None where it does not run or that is not known.
        attempt: Its newest start.
        ending: How its last end is dealt with; None where none was.
        told: How many events there were of it: what was asked for before the last of them may be
            of the past.
        starts: How often it started since it was first seen.
        restarts: How often it was started again.
        deaths: How often it died, by reason.
        last_death: How it last ended.
        earlier: When it died, the oldest first.
        oom_kills: Kills by who told of them.
        accelerators: What its processes hold.
        removed: When it was removed; None while it is there.
        changed: When something last happened to it.
        successor: Who goes on with its counts, under its name; None while it does so itself.
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
    told: int = 0
    starts: int = 0
    restarts: int | None = None
    deaths: Counter[str] = field(default_factory=Counter)
    last_death: Death | None = None
    earlier: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_EARLIER))
    oom_kills: Counter[Channel] = field(default_factory=lambda: Counter(dict.fromkeys(CHANNELS, 0)))
    accelerators: tuple[Identity, ...] = ()
    removed: float | None = None
    changed: float = 0.0
    successor: Known | None = None

    @property
    def newest(self) -> Known:
        """Who has the counts now."""
        known = self
        while known.successor is not None:
            known = known.successor
        return known

    def take_settings(self, inspection: Inspection) -> None:
        """Take over what the engine says it is."""
        self.inspection = inspection
        self.image = inspection.image or self.image
        self.compose_project = inspection.compose_project or self.compose_project
        self.compose_service = inspection.compose_service or self.compose_service
        # From then on each start is told: an answer can be ahead of the events.
        if self.restarts is None:
            self.restarts = inspection.restart_count or 0

    def take_state(self, inspection: Inspection) -> None:
        """Take over what the engine says it does, unless that is of a start not yet told of."""
        status = name_status(inspection.state.status)
        if self.attempt.is_over and status in {"running", "paused"}:
            return
        self.status = status or self.status
        self.health = name_health(inspection.state.health)
        self.pid = inspection.pid
        self.attempt.pid = inspection.pid or self.attempt.pid

    def end(self, at: float) -> None:
        """Note that it has ended."""
        self.attempt.is_over = True
        self.attempt.ended = at
        if self.status not in {"created", None}:
            self.status = "exited"
        self.health = self.pid = None
        self.accelerators = ()

    def absorb(self, other: Known) -> None:
        """Go on with the counts of one that had the name before."""
        self.deaths += other.deaths
        self.oom_kills.update(other.oom_kills)
        self.restarts = (self.restarts or 0) + (other.restarts or 0)
        self.earlier.extend(sorted([*other.earlier, *self.earlier]))
        if other.last_death is not None:
            self.take_death(other.last_death)
        other.successor = self

    def take_death(self, death: Death) -> None:
        """Take a verdict over, unless it ended again since."""
        if self.last_death is None or self.last_death.time <= death.time:
            self.last_death = death

    def count_oom_kills(self, channel: Channel, number: int = 1) -> None:
        """Count kills for memory that somebody told of."""
        self.oom_kills[channel] += number

    def take_usage(self, usage: Usage, host_oom_kills: int | None) -> None:
        """Take over a look at its control group."""
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
        exit_code: Its exit code; None where nobody knows.
        is_witnessed: Whether the event said so.
        container: Its ID at that time.
        inspection: What the engine said of it, then or before.
        state: Its state after the end; None where it could not be asked, or runs again.
        log: Its last lines; None where they could not be read.
        gaps: What could not be read.
        earlier: When it died before.
        is_fetched: Whether all that can be had of it was fetched.
        is_judged: Whether there is a verdict.
    """

    known: Known
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
    """Give the state for the metric: `removing`, `dead` and `stopped` are ways to be `exited`."""
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
    """Give the health for the metric; None where there is no health check."""
    match health:
        case "starting" | "healthy" | "unhealthy":
            return health
        case _:
            return None


def choose_told(known: Iterable[Known], most: int) -> tuple[list[Known], int]:
    """Choose whose series are served, by name: what runs first, then what changed last.

    Returns:
        Those, and how many are left out.
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
