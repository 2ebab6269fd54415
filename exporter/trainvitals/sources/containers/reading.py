"""The reading of the containers of this machine at one time."""

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
    """Resource usage of a container, from its control group or else from the engine's statistics.

    Counters count since the container's last start. None is unknown.

    Attributes:
        time: When it was read, seconds since 1970.
        cgroup_version: 1 or 2; 0 if the engine's statistics were read instead.
        memory_usage_bytes: All that is charged, file cache included.
        memory_working_set_bytes: The same less the inactive file cache.
        memory_unreclaimable_bytes: Memory that the kernel cannot reclaim.
        memory_peak_bytes: The most that was ever charged.
        memory_limit_bytes: The limit; 0 for none.
        memory_waiting_seconds: The time in which at least one task waited for memory (PSI `some`).
        memory_stalled_seconds: The time in which all tasks waited for memory (PSI `full`).
        memory_pressure_ratio: PSI `full avg10`, 0 to 1.
        oom_kills: The number of its processes that the kernel killed for memory.
        cpu_seconds: CPU time that it used.
        cpu_throttled_seconds: The time in which its CPU limit throttled it.
        cpu_limit_cores: The number of cores that it may use; 0 for no limit.
        processes: The number of its processes and threads.
        processes_limit: The maximum number of its processes and threads; 0 for no limit.
        processes_refused: The number of forks that the limit refused.
        read_bytes: Bytes read from block devices.
        written_bytes: Bytes written to block devices.
        received_bytes: Bytes received over its network; None if it shares the host's network.
        transmitted_bytes: Bytes transmitted over its network, as `received_bytes`.
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
    """The last end of a container.

    Attributes:
        time: The time of the death, seconds since 1970.
        exit_code: Its exit code; None if unknown.
        reason: The reason, one of the closed set of `trainvitals.verdicts.causes`.
        signal: The name of the signal that ended it, such as `SIGKILL`; empty if there is none.
        confidence: `high`, `medium` or `low`.
        summary: The cause of the death, in a sentence.
    """

    time: float
    exit_code: int | None
    reason: str
    signal: str
    confidence: str
    summary: str


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """One container name.

    Counters count since the exporter first saw the name; a container that is removed and created
    again under its name continues them.

    Attributes:
        name: Its name; the first 12 characters of its ID where only its control group is known.
        id: Its whole ID.
        image: The image's name; empty if unknown.
        compose_project: The Compose project; empty if there is none.
        compose_service: The Compose service; empty if there is none.
        status: The engine's state of it; None if no engine is asked.
        health: The result of its health check; None if it has none.
        started: When it was last started; None if it never was or that is not known.
        restarts: The number of its restarts.
        deaths: The number of its deaths by reason.
        last_death: Its last end; None if it has not ended, or that was not seen.
        oom_kills: OOM kills by the source that reported them.
        usage: Its usage; None while it does not run.
        accelerators: The accelerators that its processes hold.
        ends_at: When its series end because it was removed; None while it exists.
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
    """All containers.

    Attributes:
        is_there: Whether there is an engine or a container's control group at all.
        step: The step of the privilege ladder: 0 control groups alone, 1 the engine as well,
            2 the kernel log as well.
        is_connected: Whether the engine's events are followed right now; None without an engine.
        gaps: The number of interruptions of the event stream, in which events may have been missed.
        sampled: When the control groups were last read; None if they were not yet.
        containers: The containers that are reported, by name.
        omitted: The number left out by the bound.
        complaint: Why the reading is incomplete, in a sentence; None if it is complete.
    """

    is_there: bool
    step: int = 0
    is_connected: bool | None = None
    gaps: int = 0
    sampled: float | None = None
    containers: tuple[ContainerReading, ...] = ()
    omitted: int = 0
    complaint: str | None = None
