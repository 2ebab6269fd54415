"""Evidence of a death, before the verdict.

Likely secrets are masked before (see `trainvitals.masking`): command lines and log lines are text
for people, and of the environment only the names are kept.

Times are seconds since 1970 by the engine's or the kernel's clock, or since a boot of unknown date
(see `trainvitals.sources.host.kernel_text`), sizes bytes. None is unknown; an
empty tuple means that the source was read and had nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trainvitals.sources.host.kernel_lines import OomKill as OomKill  # noqa: PLC0414 - part of it
from trainvitals.sources.host.kernel_lines import XidError as XidError  # noqa: PLC0414
from trainvitals.sources.signals import read_signal

Subject = Literal["container", "process", "run"]


# The starts of the events of a container that was started.
_OF_LIFE = (
    "start",
    "restart",
    "pause",
    "unpause",
    "health_status",
    "exec",
    "top",
    "oom",
    "kill",
    "stop",
    "die",
)


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event of a container, as the engine reported it.

    Attributes:
        time: The time of the event.
        action: Its name as Docker has it: `create`, `start`, `oom`, `kill`, `die`, `stop`,
            `destroy`, `health_status: unhealthy`, ...
        exit_code: The exit code of a `die`; None for other actions.
        signal: The signal of a `kill`; None for other actions, and if the engine does not report it
            (Podman).
    """

    time: float
    action: str
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """One run of a container's health check.

    Attributes:
        time: When it ended.
        exit_code: Its exit code; -1 after a timeout.
        output: Its output, masked and cut.
    """

    time: float | None
    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class State:
    """The engine's state of a container: `State` of its inspection, after the end if known.

    Attributes:
        status: `created`, `running`, `paused`, `restarting`, `removing`, `exited`, `dead`,
            `stopped`.
        exit_code: `ExitCode`.
        is_oom_killed: `OOMKilled`, which engines may set wrongly.
        error: `Error`: why it could not be started; empty if it could.
        started: `StartedAt`; None if it never was.
        finished: `FinishedAt`; None if it never did.
        health: `Health.Status`; None if there is no health check.
        failing_streak: The number of probes that have failed in a row.
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
    """The settings of a container: `Config` and `HostConfig` of its inspection.

    Attributes:
        command: Entry point and arguments as one list, masked.
        variables: The names of its environment variables.
        is_unbuffered: Whether Python writes its output unbuffered: `PYTHONUNBUFFERED` is set, or
            `-u` is in the command.
        memory_limit_bytes: `Memory`; None for no limit.
        memory_swap_bytes: `MemorySwap`; None if it was not set, -1 for no limit.
        shm_size_bytes: `ShmSize`.
        pids_limit: `PidsLimit`; None for no limit.
        has_init: `Init`: whether PID 1 is Docker's own init.
        restart_policy: `RestartPolicy.Name`; `no` if it has none.
        log_driver: `LogConfig.Type`.
        log_options: `LogConfig.Config`, in the order of their names.
        network_mode: `NetworkMode`.
        wants_gpus: Whether it requests GPUs.
        is_read_only: `ReadonlyRootfs`.
        has_tty: `Tty`.
        is_removed_at_end: `AutoRemove`, which is `docker run --rm`.
        stop_timeout_seconds: `StopTimeout`; None for the engine's 10 s.
        user: `User`; empty for root.
        mounts: The source and the target of each mount.
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
    """The last sample of a control group before its end.

    Attributes:
        time: The time of the sample.
        cgroup_version: 1 or 2.
        memory_usage_bytes: All that is charged, file cache included.
        memory_working_set_bytes: The same without the file cache that was not used recently.
        memory_unreclaimable_bytes: Memory that the kernel cannot reclaim: anonymous and shared
            memory, and on version 2 locked memory and the kernel's own.
        memory_peak_bytes: The most that was ever charged; None if the kernel does not keep it.
        memory_limit_bytes: The limit; None if there is none.
        memory_pressure_ratio: The share of the last 10 s in which all its tasks waited for memory,
            0 to 1; None on version 1.
        oom_kills: The number of its processes that the kernel killed for memory.
        processes: The number of its processes and threads.
        processes_limit: The maximum number of its processes and threads; None for no limit.
        processes_refused: The number of forks that the limit refused.
        cpu_throttled_seconds: The time in which its CPU limit throttled it.
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
        free_bytes: Space available to an unprivileged user.
        total_bytes: Its size.
        free_inodes: The number of files that can still be created; None if the file system has no
            such limit.
    """

    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The machine at the time of the death.

    Attributes:
        time: The time of the reading.
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
class Training:
    """The run file's account of the end of a training process, or of its state while it runs.

    Attributes:
        source: The evidence for how it ended, a sentence; empty while it runs.
        pid: The process on the host; None if unknown.
        phase: The last phase, such as `data_wait`, `backward` or `checkpoint`; None if unknown.
        phase_seconds: The time since it entered the phase; None if unknown.
        idle_seconds: The time since its last progress, up to its end or to now; None if unknown.
        idle_limit_seconds: The time that the phase may take without progress; None for no limit.
        slowest_step_seconds: The slowest of its recent steps; None if unknown.
        stall: `stopped` where the process is, `no_progress` where it takes too long; None if it
            makes progress, or has ended.
        steps: The number of its steps; None if unknown.
        nonfinite_losses: The number of losses that were NaN or infinite; None if unknown.
        is_loss_finite: Whether the last loss was a number; None if there was none.
        is_switched_off: Whether the monitor had switched itself off after internal errors.
        is_end_seen: Whether the exporter saw it end, or it recorded its end itself.
        world_size: The number of ranks on all machines; None if unknown.
        ranks_here: The number of ranks that left a run file on this machine.
    """

    source: str = ""
    pid: int | None = None
    phase: str | None = None
    phase_seconds: float | None = None
    idle_seconds: float | None = None
    idle_limit_seconds: float | None = None
    slowest_step_seconds: float | None = None
    stall: Literal["stopped", "no_progress"] | None = None
    steps: int | None = None
    nonfinite_losses: int | None = None
    is_loss_finite: bool | None = None
    is_switched_off: bool = False
    is_end_seen: bool = True
    world_size: int | None = None
    ranks_here: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A source that would have had more and could not be read.

    Attributes:
        what: The missing source, such as `the kernel log`.
        why: The reason why it could not be read.
        remedy: The step that makes it readable the next time.
    """

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one death, or of the present trouble of something that still runs.

    Attributes:
        subject: What died.
        name: The container's, run's or process's name.
        id: The container's ID; empty if it has none.
        image: The image's name; empty if unknown.
        compose_project: The Compose project; empty if there is none.
        compose_service: The Compose service; empty if there is none.
        engine: `docker` or `podman` with its version; empty if none was asked.
        cgroup: The control group's path, as `/proc/PID/cgroup` has it; empty if unknown.
        started: When it was last started.
        ended: When it ended; None if it runs.
        exit_code: The exit code from the event `die`, else from the state; None if it runs or the
            code is unknown. One that a user reports may be 256 and a signal, or minus a signal.
        is_exit_code_witnessed: Whether the exit code is that of the event.
        signal: The signal that ended a plain process or rank; None for containers, whose exit
            code has it.
        exception: The exception that a run ended with; empty if there is none.
        events: The engine's events for the container since its last start (and its creation), the
            oldest first; None if events were not followed.
        state: The engine's account; None if it could not be asked.
        settings: Its settings; None if they are not known.
        log: Its last lines, of its last start alone, masked; None if they could not be read.
        oom_kills: Kills in its control group by the kernel log; None if that could not be read.
        xids: Errors of GPUs around its end; None if the kernel log could not be read.
        kernel_lines: Other relevant lines of the kernel log around its end, masked.
        sample: The last sample of its control group.
        host: The machine at that time.
        host_oom_kills: By how much the host's count of OOM kills rose from the last sample before
            the end until just after it; None if it was not watched.
        restarts: The number of restarts by the engine.
        earlier_deaths: The times of its earlier deaths, the oldest first.
        engine_started: When the engine itself started; None if unknown.
        engine_errors: The engine's log around that time, masked.
        training: The content of its run file; None if it is not a training run.
        is_ended: Whether it has ended, by the user's report; None without one.
        pod: The lines of `kubectl describe pod`, masked; None where they are not known.
        gaps: The sources that could not be read.
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
    training: Training | None = None
    is_ended: bool | None = None
    pod: tuple[str, ...] | None = None
    gaps: tuple[Gap, ...] = field(default=())

    @property
    def was_never_started(self) -> bool:
        """Whether the engine made it and could not, or was not asked to, start it."""
        state = self.state
        return (
            state is not None
            and state.status in {"created", "initialized", "configured"}
            and not any(event.action in {"start", "die"} for event in self.events or ())
        )

    @property
    def has_ended(self) -> bool:
        """Whether it is over; False too if it never started."""
        if self.was_never_started:
            return False
        if self.ended is not None or self.signal is not None or self.exception:
            return True
        if self.exit_code is not None or self.is_ended:
            return True
        return self.state is not None and self.state.status in {"exited", "dead", "stopped"}

    @property
    def is_unobserved(self) -> bool:
        """Whether no source shows that it runs or that it ended, as with a log alone."""
        if self.has_ended or self.is_ended is not None:
            return False
        is_living_process = self.subject == "process" and self.started is not None
        sources = (self.state, self.sample, self.training)
        has_run = any(event.action.startswith(_OF_LIFE) for event in self.events or ())
        return not (is_living_process or has_run or any(each is not None for each in sources))

    @property
    def last_exit_code(self) -> int | None:
        """The exit code, by the event or else by the state; None if it runs or that is not known."""
        if self.exit_code is not None or self.state is None:
            return self.exit_code
        return self.state.exit_code if self.has_ended else None

    @property
    def last_signal(self) -> int | None:
        """The signal that ended it, also from an exit code; None if there is none."""
        if self.signal is not None:
            return self.signal
        return read_signal(self.last_exit_code or 0)
