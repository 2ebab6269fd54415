"""The state of this machine's containers at the time of a reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainvitals.sources.accelerators.reading import Identity

Status = Literal["created", "running", "paused", "restarting", "exited"]
Health = Literal["starting", "healthy", "unhealthy"]
Channel = Literal["event", "cgroup", "kernel"]


@dataclass(frozen=True, slots=True)
class Usage:
    """A container's resource usage, from its control group or from the engine's statistics.

    The counters start at the container's last start. An unknown value is None.

    Attributes:
        time: The time of the reading, in seconds since 1970.
        cgroup_version: The cgroup version, 1 or 2; 0 if the engine's statistics were read instead.
        memory_usage_bytes: The memory charged to the container, including the file cache.
        memory_working_set_bytes: The charged memory without the inactive file cache.
        memory_unreclaimable_bytes: The charged memory that the kernel cannot reclaim.
        memory_peak_bytes: The maximum of the charged memory.
        memory_limit_bytes: The container's memory limit; 0 for no limit.
        memory_waiting_seconds: The time in which at least one task waited for memory, from `some`
            in the kernel's pressure stall information (PSI).
        memory_stalled_seconds: The time in which all tasks waited for memory, from `full` in the
            PSI.
        memory_pressure_ratio: The fraction of the last 10 s in which all tasks waited for memory, 0
            to 1, from `full avg10` in the PSI.
        oom_kills: The number of the container's processes that the OOM killer killed.
        cpu_seconds: The CPU time that the container has used.
        cpu_throttled_seconds: The time in which the CPU limit throttled the container.
        cpu_limit_cores: The number of cores that the container may use; 0 for no limit.
        processes: The number of processes and threads in the container.
        processes_limit: The maximum number of processes and threads in the container; 0 for no
            limit.
        processes_refused: The number of forks that failed because of `processes_limit`.
        read_bytes: The number of bytes that the container read from block devices.
        written_bytes: The number of bytes that the container wrote to block devices.
        received_bytes: The number of bytes received over the container's own network; None if the
            container has no network of its own.
        transmitted_bytes: The number of bytes transmitted over the container's own network; None if
            the container has no network of its own.
    """

    time: float
    cgroup_version: int
    memory_usage_bytes: int | None = None
    memory_working_set_bytes: int | None = None
    memory_unreclaimable_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_waiting_seconds: float | None = None
    memory_stalled_seconds: float | None = None
    memory_pressure_ratio: float | None = None
    oom_kills: int | None = None
    cpu_seconds: float | None = None
    cpu_throttled_seconds: float | None = None
    cpu_limit_cores: float | None = None
    processes: int | None = None
    processes_limit: int | None = None
    processes_refused: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    received_bytes: int | None = None
    transmitted_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """The last exit of a container.

    Attributes:
        time: The time of the exit, in seconds since 1970.
        exit_code: The exit code of the container; None if the exit code is unknown.
        reason: The cause of the exit, which is one of the causes in `trainvitals.verdicts.causes`.
        signal: The name of the signal that ended the container, such as `SIGKILL`; empty if no
            signal ended the container.
        confidence: The confidence in the cause: `high`, `medium` or `low`.
        summary: The cause of the exit, in a sentence.
    """

    time: float
    exit_code: int | None
    reason: str
    signal: str
    confidence: str
    summary: str


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """The state of the containers with one name, at the time of a reading.

    The counters start when the exporter first observes a container with the name. If a container is
    removed and created again under the same name, the counters continue.

    Attributes:
        name: The container's name, or the first 12 characters of its ID if the name is unknown.
        id: The full ID of the container.
        image: The name of the container's image; empty if the name is unknown.
        compose_project: The container's Compose project; empty if the container belongs to no
            project.
        compose_service: The container's Compose service; empty if the container belongs to no
            service.
        status: The container's state according to the engine; None if no engine is queried or the
            state is unknown.
        health: The result of the container's health check; None if the container has no health
            check.
        started: The time of the container's last start; None if the container was never started or
            the time is unknown.
        restarts: The number of the container's restarts; None if the number is unknown.
        deaths: The number of the container's exits, by reason.
        last_death: The container's last exit; None if no exit is known.
        oom_kills: The number of OOM kills in the container, by the source that reported the kills.
        usage: The container's resource usage; None if the container is not running or has not been
            sampled yet.
        accelerators: The accelerators that the container's processes use.
        ends_at: The time when the series of the removed container end; None while the container
            exists.
    """

    name: str
    id: str
    image: str = ""
    compose_project: str = ""
    compose_service: str = ""
    status: Status | None = None
    health: Health | None = None
    started: float | None = None
    restarts: int | None = None
    deaths: Mapping[str, int] = field(default_factory=dict)
    last_death: Death | None = None
    oom_kills: Mapping[Channel, int] = field(default_factory=dict)
    usage: Usage | None = None
    accelerators: tuple[Identity, ...] = ()
    ends_at: float | None = None


@dataclass(frozen=True, slots=True)
class ContainersReading:
    """The state of all containers on this machine, at the time of a reading.

    Attributes:
        is_there: Whether the machine has a container engine or any container's control group.
        step: The level of access: 0 if only control groups can be read, 1 if the engine can be
            queried as well, 2 if the kernel log can be read as well.
        is_connected: Whether the engine's event stream is connected; None if there is no engine.
        gaps: The number of times that the event stream was interrupted. During an interruption,
            events may have been missed.
        sampled: The time when the control groups were last read; None if the control groups have
            not been read yet.
        containers: The reported containers, sorted by name.
        omitted: The number of containers that were omitted because of the limit on `containers`.
        complaint: The reason why the reading is incomplete, in a sentence; None if the reading is
            complete.
    """

    is_there: bool
    step: int = 0
    is_connected: bool | None = None
    gaps: int = 0
    sampled: float | None = None
    containers: tuple[ContainerReading, ...] = ()
    omitted: int = 0
    complaint: str | None = None
