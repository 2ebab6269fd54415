"""What is known of the containers of this machine at one time."""

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
    """What a container uses, from its control group or else from the engine's statistics.

    Counters count since the container's last start. None says that it is not known.

    Attributes:
        time: When it was read, seconds since 1970.
        cgroup_version: 1 or 2; 0 where the engine's statistics were read instead.
        memory_usage_bytes: All that is charged, file cache included.
        memory_working_set_bytes: The same less the inactive file cache.
        memory_unreclaimable_bytes: What the kernel cannot drop before it must kill.
        memory_peak_bytes: The most that was ever charged.
        memory_limit_bytes: The limit; 0 for none.
        memory_waiting_seconds: How long at least one task waited for memory (PSI `some`).
        memory_stalled_seconds: How long all tasks waited for memory (PSI `full`).
        memory_pressure_ratio: PSI `full avg10`, 0 to 1.
        oom_kills: How many of its processes the kernel killed for memory.
        cpu_seconds: CPU time that it used.
        cpu_throttled_seconds: How long its CPU limit held it back.
        cpu_limit_cores: How many cores it may use; 0 for no limit.
        processes: How many processes and threads there are.
        processes_limit: How many there may be; 0 for no limit.
        processes_refused: How often another one was refused.
        read_bytes: What it read from block devices.
        written_bytes: What it wrote to them.
        received_bytes: What came in over its network; None where it shares the host's.
        transmitted_bytes: What went out.
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
    """How a container last ended.

    Attributes:
        time: When, seconds since 1970.
        exit_code: Its exit code; None where nobody knows.
        reason: Why: one of the closed set of `trainvitals.causes`.
        signal: The name of the signal that ended it, such as `SIGKILL`; empty for none.
        confidence: `high`, `medium` or `low`.
        summary: What happened, in a sentence.
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

    What is counted, is counted since the exporter first saw the name; a container that is removed
    and made anew under its name goes on with the counts.

    Attributes:
        name: Its name; the first 12 characters of its ID where only its control group is known.
        id: Its whole ID.
        image: The image's name; empty where not known.
        compose_project: The Compose project; empty for none.
        compose_service: The Compose service; empty for none.
        status: What the engine says it does; None where no engine is asked.
        health: What its health check says; None where it has none.
        started: When it was last started; None where it never was or nobody knows.
        restarts: How often it was started again.
        deaths: How often it died, by reason.
        last_death: How it last ended; None where it has not, or nobody saw.
        oom_kills: Kills for memory by who told of them.
        usage: What it uses; None while it does not run.
        accelerators: The accelerators that its processes hold.
        ends_at: When its series go, because it was removed; None while it is there.
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
        gaps: How often the events were cut off, so that some may be missing.
        sampled: When the control groups were last read; None where they were not yet.
        containers: Those that are told of, by name.
        omitted: How many a bound left out.
        complaint: What is wrong, in a sentence; None for nothing.
    """

    is_there: bool
    step: int = 0
    is_connected: bool | None = None
    gaps: int = 0
    sampled: float | None = None
    containers: tuple[ContainerReading, ...] = ()
    omitted: int = 0
    complaint: str | None = None
