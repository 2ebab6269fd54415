"""Simulated containers: the readings of the engine and of the control groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.course import Course, Total, constant
from fleet.jobs import DEAD
from fleet.script import Script, Stage
from trainvitals.sources.accelerators.reading import Identity
from trainvitals.sources.containers.reading import (
    ContainerReading,
    ContainersReading,
    Death,
    Health,
    Usage,
)

_FOR_EVER = 1e9
_UNRECLAIMABLE = 0.93
_SAMPLED_EVERY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class End:
    """The exit of a container, the same after each start.

    Attributes:
        reason: One of the causes of `trainvitals diagnose`.
        exit_code: The exit code.
        signal: The signal that terminated the container; empty for none.
        summary: A description of the exit in one sentence.
    """

    reason: str
    exit_code: int
    signal: str
    summary: str


OOM = End("oom-cgroup", 137, "SIGKILL", "The kernel killed it because it reached its memory limit.")
FAILED = End("exception", 1, "", "It ended by an exception.")


@dataclass(slots=True)
class Container:
    """A container that runs, exits and restarts according to its script.

    Attributes:
        name: The container name.
        image: The image name.
        service: The Compose service.
        project: The Compose project.
        start: The time at which the counters start, in Unix seconds.
        fill: The share of `limit_bytes` in use, as a function of the seconds since the start.
        limit_bytes: The memory limit, or the maximum memory use if memory is not limited.
        cores: The number of cores in use.
        limit_cores: The maximum number of cores; 0 for no limit.
        is_limited: Whether memory is limited.
        script: The script of stages in which the container runs or has exited; None for a container
            that always runs.
        end: The exit of the container.
        health: The result of the health check; None without a health check.
        is_restarted: Whether the engine restarts the container.
        accelerators: The accelerators that the container's processes hold.
        read_bytes: The bytes read per second.
        received_bytes: The bytes received per second.
    """

    name: str
    image: str
    service: str
    project: str
    start: float
    fill: Course
    limit_bytes: int
    cores: Course
    limit_cores: float = 0.0
    is_limited: bool = True
    script: Script | None = None
    end: End = OOM
    health: Health | None = None
    is_restarted: bool = True
    accelerators: tuple[Identity, ...] = ()
    read_bytes: Course = field(default=constant(2e6))
    received_bytes: Course = field(default=constant(5e5))
    _course: Script = field(init=False)
    _totals: dict[str, Total] = field(init=False)

    def __post_init__(self) -> None:
        self._course = self.script or Script((Stage("running", _FOR_EVER),), self.start)
        rates: dict[str, Course] = {
            "cpu": self.cores,
            "throttled": lambda now: 0.05 if 0 < self.limit_cores <= self.cores(now) else 0.0,
            "read": self.read_bytes,
            "received": self.received_bytes,
            "stalled": lambda now: max(0.0, self._filled(now) - 0.9),
        }
        self._totals = {name: Total(rate, self.start) for name, rate in rates.items()}

    def count_deaths(self, now: float) -> int:
        """Return the number of times the container has exited since `start`."""
        scene = self._course.at(now)
        return scene.round + (scene.name == DEAD)

    def read(self, now: float) -> ContainerReading:
        """Return an engine's reading of the container."""
        scene, deaths = self._course.at(now), self.count_deaths(now)
        is_dead = scene.name == DEAD
        kills = deaths if self.end is OOM else 0
        return ContainerReading(
            name=self.name,
            id=f"{sum(map(ord, self.name)):064x}",
            image=self.image,
            compose_project=self.project,
            compose_service=self.service,
            status=("restarting" if self.is_restarted else "exited") if is_dead else "running",
            health=self.health,
            started=scene.round_start,
            restarts=scene.round if self.is_restarted else 0,
            deaths={self.end.reason: deaths} if deaths else {},
            last_death=self._describe_death(now) if deaths else None,
            oom_kills={"event": kills, "cgroup": kills, "kernel": kills},
            usage=None if is_dead else self._use(now),
            accelerators=() if is_dead else self.accelerators,
        )

    def _describe_death(self, now: float) -> Death:
        scene, end = self._course.at(now), self.end
        died = scene.round_start + self._course.begin_last(DEAD)
        if died > now:
            died -= self._course.seconds
        return Death(died, end.exit_code, end.reason, end.signal, "high", end.summary)

    def _filled(self, now: float) -> float:
        return min(0.995, self.fill(now - self._course.at(now).round_start))

    def _use(self, now: float) -> Usage:
        since = self._course.at(now).round_start
        counted = {name: total.at(now) - total.at(since) for name, total in self._totals.items()}
        used = int(self._filled(now) * self.limit_bytes)
        return Usage(
            time=now,
            cgroup_version=2,
            memory_usage_bytes=min(self.limit_bytes, int(1.03 * used)),
            memory_working_set_bytes=used,
            memory_unreclaimable_bytes=int(_UNRECLAIMABLE * used),
            memory_peak_bytes=min(self.limit_bytes, int(1.04 * used)),
            memory_limit_bytes=self.limit_bytes if self.is_limited else 0,
            memory_waiting_seconds=round(1.5 * counted["stalled"], 3),
            memory_stalled_seconds=round(counted["stalled"], 3),
            oom_kills=0,
            cpu_seconds=round(counted["cpu"], 3),
            cpu_throttled_seconds=round(counted["throttled"], 3),
            cpu_limit_cores=self.limit_cores,
            processes=8 + int(2 * self.cores(now)),
            processes_limit=0,
            processes_refused=0,
            read_bytes=int(counted["read"]),
            written_bytes=int(counted["read"] / 6),
            received_bytes=int(counted["received"]),
            transmitted_bytes=int(counted["received"] / 9),
        )


def read_containers(containers: Sequence[Container], now: float) -> ContainersReading:
    """Return the reading of all containers of a machine; without containers, no engine exists."""
    if not containers:
        return ContainersReading(is_there=False)
    return ContainersReading(
        is_there=True,
        step=2,
        is_connected=True,
        sampled=now - now % _SAMPLED_EVERY_SECONDS,
        containers=tuple(container.read(now) for container in containers),
    )
