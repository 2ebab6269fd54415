"""What is known of a death, before anybody judges it.

Whoever builds it has masked what could be a secret (see `trainvitals.masking`): command lines and
log lines are text for people, and of the environment there are only the names.

Times are seconds since 1970 by the engine's or the kernel's clock, sizes bytes. None says that it
is not known; an empty tuple that it was looked for and that there was nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Subject = Literal["container", "process", "run"]


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event of a container, as the engine told it.

    Attributes:
        time: When it happened.
        action: Its name as Docker has it: `create`, `start`, `oom`, `kill`, `die`, `stop`,
            `destroy`, `health_status: unhealthy`, ...
        exit_code: Of `die`; None of others.
        signal: Of `kill`; None of others, and where the engine does not say it (Podman).
    """

    time: float
    action: str
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class OomKill:
    """A kill by the kernel's OOM killer, from a line `oom-kill:` of the kernel log.

    Attributes:
        time: When it happened.
        constraint: `CONSTRAINT_MEMCG` where a limit was hit, `CONSTRAINT_NONE` where the host had
            no memory left, `CONSTRAINT_CPUSET` or `CONSTRAINT_MEMORY_POLICY` of a NUMA node.
        oom_memcg: The control group whose limit was hit; None where it was none's.
        task_memcg: The control group of the process that was killed.
        task: Its name, cut to 15 characters.
        pid: Its number on the host.
        anon_rss_bytes: The anonymous memory it held; None where that line is not there.
        shmem_rss_bytes: The shared memory it held.
    """

    time: float
    constraint: str
    oom_memcg: str | None
    task_memcg: str
    task: str
    pid: int
    anon_rss_bytes: int | None = None
    shmem_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class XidError:
    """An error that NVIDIA's driver wrote to the kernel log.

    Attributes:
        time: When it happened.
        bus_id: The PCI address as the kernel writes it, such as `0000:3b:00.0` or `0000:3b:00`.
        code: The Xid; 79 also for a line without a number that says it fell off the bus.
        text: What follows the number, masked and cut.
        pid: The process it names; None where it names none.
    """

    time: float
    bus_id: str
    code: int
    text: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """One run of a container's health check.

    Attributes:
        time: When it ended.
        exit_code: Its exit code; -1 where it took too long.
        output: What it said, masked and cut.
    """

    time: float | None
    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class State:
    """What the engine says of a container: `State` of its inspection, after the end where known.

    Attributes:
        status: `created`, `running`, `paused`, `restarting`, `removing`, `exited`, `dead`,
            `stopped`.
        exit_code: `ExitCode`.
        is_oom_killed: `OOMKilled`; evidence, not the truth.
        error: `Error`: why it could not be started; empty where it could.
        started: `StartedAt`; None where it never was.
        finished: `FinishedAt`; None where it never did.
        health: `Health.Status`; None where there is no health check.
        failing_streak: How many probes have failed in a row.
        probes: The last probes, the oldest first.
    """

    status: str
    exit_code: int
    is_oom_killed: bool = False
    error: str = ""
    started: float | None = None
    finished: float | None = None
    health: str | None = None
    failing_streak: int = 0
    probes: tuple[HealthProbe, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """How a container was set up: `Config` and `HostConfig` of its inspection.

    Attributes:
        command: Entry point and arguments as one list, masked.
        variables: The names of its environment variables.
        is_unbuffered: Whether Python writes at once: `PYTHONUNBUFFERED` is set, or `-u` is in the
            command.
        memory_limit_bytes: `Memory`; None for no limit.
        memory_swap_bytes: `MemorySwap`; None where it was not set, -1 for no limit.
        shm_size_bytes: `ShmSize`.
        pids_limit: `PidsLimit`; None for no limit.
        has_init: `Init`: whether PID 1 is Docker's own init.
        restart_policy: `RestartPolicy.Name`; `no` where it has none.
        log_driver: `LogConfig.Type`.
        log_options: `LogConfig.Config`, in the order of their names.
        network_mode: `NetworkMode`.
        wants_gpus: Whether it asks for GPUs.
        is_read_only: `ReadonlyRootfs`.
        has_tty: `Tty`.
        is_removed_at_end: `AutoRemove`, which is `docker run --rm`.
        stop_timeout_seconds: `StopTimeout`; None for the engine's 10 s.
        user: `User`; empty for root.
        mounts: Where each mount comes from and goes to.
    """

    command: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    is_unbuffered: bool = False
    memory_limit_bytes: int | None = None
    memory_swap_bytes: int | None = None
    shm_size_bytes: int | None = None
    pids_limit: int | None = None
    has_init: bool = False
    restart_policy: str = "no"
    log_driver: str = ""
    log_options: tuple[tuple[str, str], ...] = ()
    network_mode: str = ""
    wants_gpus: bool = False
    is_read_only: bool = False
    has_tty: bool = False
    is_removed_at_end: bool = False
    stop_timeout_seconds: int | None = None
    user: str = ""
    mounts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """The last look at a control group before its end.

    Attributes:
        time: When that was.
        cgroup_version: 1 or 2.
        memory_usage_bytes: All that is charged, file cache included.
        memory_working_set_bytes: The same without the file cache that was not used lately.
        memory_unreclaimable_bytes: What the kernel cannot drop before it must kill: anonymous and
            shared memory, and on version 2 what is locked and the kernel's own.
        memory_peak_bytes: The most that was ever charged; None where the kernel does not keep it.
        memory_limit_bytes: The limit; None for none.
        memory_pressure_ratio: How much of the last 10 s all its tasks waited for memory, 0 to 1;
            None on version 1.
        oom_kills: How many of its processes the kernel killed for memory.
        processes: How many processes and threads there are.
        processes_limit: How many there may be; None for no limit.
        processes_refused: How often another one was refused.
        cpu_throttled_seconds: How long it was held back by its CPU limit.
    """

    time: float
    cgroup_version: int
    memory_usage_bytes: int | None = None
    memory_working_set_bytes: int | None = None
    memory_unreclaimable_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_pressure_ratio: float | None = None
    oom_kills: int | None = None
    processes: int | None = None
    processes_limit: int | None = None
    processes_refused: int | None = None
    cpu_throttled_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system at that time.

    Attributes:
        path: A folder on it.
        free_bytes: What a user may still write.
        total_bytes: Its size.
        free_inodes: How many files it still has room for; None where it has no such limit.
    """

    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The machine at the time of the death.

    Attributes:
        time: When that was.
        memory_total_bytes: `MemTotal`.
        memory_available_bytes: `MemAvailable`.
        swap_free_bytes: `SwapFree`.
        disks: File systems that containers write to.
        biggest: The processes that held the most memory: name and bytes.
    """

    time: float
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_free_bytes: int | None = None
    disks: tuple[Disk, ...] = ()
    biggest: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that would have told more and could not be read.

    Attributes:
        what: What it is, such as `the kernel log`.
        why: Why it could not be read.
        remedy: What makes it readable the next time.
    """

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one death, or of the present trouble of what still runs.

    Attributes:
        subject: What died.
        name: The container's, run's or process's name.
        id: The container's ID; empty where it has none.
        image: The image's name; empty where it is not known.
        compose_project: The Compose project; empty for none.
        compose_service: The Compose service; empty for none.
        engine: `docker` or `podman` with its version; empty where none was asked.
        cgroup: The control group's path, as `/proc/PID/cgroup` has it; empty where not known.
        started: When it was last started.
        ended: When it ended; None where it runs.
        exit_code: As the event `die` said it, else as the state does; None where it runs or
            nobody knows.
        is_exit_code_witnessed: Whether that came with the event.
        signal: The signal that ended a plain process or rank; None for containers, whose exit
            code tells it.
        exception: The exception that a run ended with; empty for none.
        events: What the engine told of it since its last start (and its creation), the oldest
            first; None where nobody listened.
        state: What the engine says of it; None where it could not be asked.
        settings: How it was set up; None where that is not known.
        log: Its last lines, of its last start alone, masked; None where they could not be read.
        oom_kills: Kills in its control group by the kernel log; None where that could not be read.
        xids: Errors of GPUs around its end; None where the kernel log could not be read.
        kernel_lines: Other telling lines of the kernel log around its end, masked.
        sample: The last look at its control group.
        host: The machine at that time.
        host_oom_kills: By how much the host's count of OOM kills rose from the last look before the
            end until just after it; None where it was not watched.
        restarts: How often the engine restarted it.
        earlier_deaths: When it died before, the oldest first.
        engine_started: When the engine itself started; None where not known.
        engine_errors: What the engine logged around that time, masked.
        gaps: What could not be read.
    """

    subject: Subject
    name: str
    id: str = ""
    image: str = ""
    compose_project: str = ""
    compose_service: str = ""
    engine: str = ""
    cgroup: str = ""
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    is_exit_code_witnessed: bool = False
    signal: int | None = None
    exception: str = ""
    events: tuple[EngineEvent, ...] | None = None
    state: State | None = None
    settings: Settings | None = None
    log: tuple[str, ...] | None = None
    oom_kills: tuple[OomKill, ...] | None = None
    xids: tuple[XidError, ...] | None = None
    kernel_lines: tuple[str, ...] = ()
    sample: Sample | None = None
    host: Host | None = None
    host_oom_kills: int | None = None
    restarts: int | None = None
    earlier_deaths: tuple[float, ...] = ()
    engine_started: float | None = None
    engine_errors: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = field(default=())
