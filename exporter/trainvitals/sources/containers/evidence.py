"""The evidence for a death, from which the verdict is derived.

Command lines and log lines are kept as text, in which likely secrets have been masked (see
`trainvitals.masking`). Only the names of environment variables are kept.

Times are seconds since 1970 according to the engine's or the kernel's clock, or seconds since a
boot of unknown date (see `trainvitals.sources.host.kernel_text`). Sizes are in bytes. None means
unknown; an empty tuple means that the source was read and contained nothing relevant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trainvitals.sources.host.kernel_lines import OomKill as OomKill  # noqa: PLC0414 - part of it
from trainvitals.sources.host.kernel_lines import XidError as XidError  # noqa: PLC0414
from trainvitals.sources.signals import read_signal

Subject = Literal["container", "process", "run"]


# The beginnings of the names of events that only a started container has.
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
    """One container event reported by the engine.

    Attributes:
        time: The time of the event.
        action: The action under Docker's name: `create`, `start`, `oom`, `kill`, `die`, `stop`,
            `destroy`, `health_status: unhealthy`, ...
        exit_code: The exit code of a `die`; None for other actions.
        signal: The signal of a `kill`; None for other actions, or if the engine does not report the
            signal (Podman).
    """

    time: float
    action: str
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """One run of a container's health check.

    Attributes:
        time: When the run ended; None if unknown.
        exit_code: The exit code; -1 after a timeout.
        output: The masked output, limited in length.
    """

    time: float | None
    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class State:
    """A container's state according to the engine: `State` in the inspection.

    Attributes:
        status: `created`, `running`, `paused`, `restarting`, `removing`, `exited`, `dead` or
            `stopped`.
        exit_code: `ExitCode`.
        is_oom_killed: `OOMKilled`, which engines may set incorrectly.
        error: `Error`: the reason why the container could not be started; empty if it could.
        started: `StartedAt`; None if the container has never started.
        finished: `FinishedAt`; None if the container has never ended.
        health: `Health.Status`; None if there is no health check.
        failing_streak: The number of consecutive failed health checks.
        probes: The last runs of the health check, the oldest first.
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
    """A container's settings: `Config` and `HostConfig` in the inspection.

    Attributes:
        command: The entry point and the arguments as one list, masked.
        variables: The names of the environment variables.
        is_unbuffered: Whether Python's output is unbuffered, because `PYTHONUNBUFFERED` is set or
            the command contains `-u`.
        memory_limit_bytes: `Memory`; None for no limit.
        memory_swap_bytes: `MemorySwap`; None if it is not set, -1 for no limit.
        shm_size_bytes: `ShmSize`.
        pids_limit: `PidsLimit`; None for no limit.
        has_init: `Init`: whether PID 1 is Docker's own init process.
        restart_policy: `RestartPolicy.Name`; `no` if the container has no restart policy.
        log_driver: `LogConfig.Type`.
        log_options: `LogConfig.Config`: the names and masked values, sorted by name.
        network_mode: `NetworkMode`.
        wants_gpus: Whether the container requests GPUs.
        is_read_only: `ReadonlyRootfs`.
        has_tty: `Tty`.
        is_removed_at_end: `AutoRemove`, set by `docker run --rm`.
        stop_timeout_seconds: `StopTimeout`; None for the engine's default of 10 s.
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
    """The last sample of a control group's resource usage before its end.

    Attributes:
        time: The time of the sample.
        cgroup_version: The cgroup version, 1 or 2; 0 if the engine's statistics were read instead.
        memory_usage_bytes: The memory charged to the group, including the file cache.
        memory_working_set_bytes: The charged memory without the inactive file cache.
        memory_unreclaimable_bytes: The memory that the kernel cannot reclaim: anonymous and shared
            memory and, in cgroup v2, also locked memory and the kernel's own memory.
        memory_peak_bytes: The maximum of the charged memory; None if the kernel does not record it.
        memory_limit_bytes: The memory limit; None for no limit.
        memory_pressure_ratio: The share of the last 10 s in which all of the group's tasks waited
            for memory, 0 to 1; None in cgroup v1.
        oom_kills: The number of the group's processes that the OOM killer killed.
        processes: The number of processes and threads.
        processes_limit: The maximum number of processes and threads; None for no limit.
        processes_refused: The number of forks that failed because of this limit.
        cpu_throttled_seconds: The time in which the CPU limit throttled the group, in seconds.
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
    """The state of a file system when the container or run ended.

    Attributes:
        path: A folder on the file system.
        free_bytes: The space available to an unprivileged user.
        total_bytes: The size of the file system.
        free_inodes: The number of files that can still be created; None if the file system does not
            limit the number of files.
    """

    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The machine's state at the time of the death.

    Attributes:
        time: The time of the reading.
        memory_total_bytes: `MemTotal`.
        memory_available_bytes: `MemAvailable`.
        swap_free_bytes: `SwapFree`.
        disks: The file systems that containers write to.
        biggest: The name and the memory, in bytes, of each process with the highest memory usage.
    """

    time: float
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_free_bytes: int | None = None
    disks: tuple[Disk, ...] = ()
    biggest: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Training:
    """The end of a training process, or its current state, according to its run file.

    Attributes:
        source: The evidence for how the process ended, in a sentence; empty while it is running.
        pid: The process's PID on the host; None if unknown.
        phase: The last phase, such as `data_wait`, `backward` or `checkpoint`; None if unknown.
        phase_seconds: The time since the phase was entered; None if unknown.
        idle_seconds: The time from the last progress until the end, or until now if the process is
            running; None if unknown.
        idle_limit_seconds: The maximum time that the phase may take without progress; None for no
            limit.
        slowest_step_seconds: The duration of the slowest recent step; None if unknown.
        stall: `stopped` if the process is stopped, `no_progress` if the phase takes too long; None
            if the process makes progress or has ended.
        steps: The number of steps; None if unknown.
        nonfinite_losses: The number of losses that were NaN or infinite; None if unknown.
        is_loss_finite: Whether the last loss was finite; None if no loss was recorded.
        is_switched_off: Whether the monitor had disabled itself after internal errors.
        is_end_seen: Whether the exporter observed the end, or the process itself recorded its end.
        world_size: The number of ranks on all machines; None if unknown.
        ranks_here: The number of ranks with a run file on this machine; None if unknown.
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
    """A source of further evidence that could not be read.

    Attributes:
        what: The missing source, such as `the kernel log`.
        why: The reason why the source could not be read.
        remedy: The step that makes the source readable the next time.
    """

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for one death, or for the current trouble of a running subject.

    The subject is a container, a process or a training run.

    Attributes:
        subject: The kind of the subject.
        name: The name of the container, process or run.
        id: The container's ID; empty if there is none.
        image: The image's name; empty if unknown.
        compose_project: The Compose project; empty if there is none.
        compose_service: The Compose service; empty if there is none.
        engine: `docker` or `podman` with its version; empty if no engine was queried.
        cgroup: The control group's path in the format of `/proc/PID/cgroup`; empty if unknown.
        started: When the subject was last started; None if unknown.
        ended: When the subject ended; None if it is running or the time is unknown.
        exit_code: The exit code from the event `die`, or else from the state; None if the subject
            is running or the code is unknown. An exit code reported by a user may be 256 plus a
            signal number, or a negative signal number.
        is_exit_code_witnessed: Whether the exit code was reported by the event.
        signal: The signal that ended a plain process or rank; None for containers, whose exit code
            contains the signal.
        exception: The exception that ended a run; empty if there is none.
        events: The engine's events for the container since its last start, and its creation, the
            oldest first; None if events were not followed.
        state: The container's state according to the engine; None if it is not known.
        settings: The container's settings; None if they are not known.
        log: The masked last log lines of the last start; None if they could not be read.
        oom_kills: The OOM kills in the kernel log that concern the subject; None if the kernel log
            could not be read.
        xids: The GPU errors around the end; None if the kernel log could not be read.
        kernel_lines: Other relevant lines of the kernel log around the end, masked.
        sample: The last sample of the control group; None if there is none.
        host: The machine's state at the time of the death; None if it is not known.
        host_oom_kills: The increase of the host's OOM kill count from the last sample before the
            end until just after the end; None if the count was not observed.
        restarts: The number of restarts by the engine; None if unknown.
        earlier_deaths: The times of the earlier deaths, the oldest first.
        engine_started: When the engine was started; None if unknown.
        engine_errors: The lines of the engine's log around the end, masked.
        training: The content of the run file; None if the subject is not a training run.
        is_ended: Whether the subject has ended according to the user; None if the user did not
            report it.
        pod: The masked lines of `kubectl describe pod`; None if they are not known.
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
        """Whether the container was created but has not been started, or its start failed."""
        state = self.state
        return (
            state is not None
            and state.status in {"created", "initialized", "configured"}
            and not any(event.action in {"start", "die"} for event in self.events or ())
        )

    @property
    def has_ended(self) -> bool:
        """Whether the subject has ended; False if it was never started."""
        if self.was_never_started:
            return False
        if self.ended is not None or self.signal is not None or self.exception:
            return True
        if self.exit_code is not None or self.is_ended:
            return True
        return self.state is not None and self.state.status in {"exited", "dead", "stopped"}

    @property
    def is_unobserved(self) -> bool:
        """Whether no source shows that the subject is running or has ended.

        This is the case if, for example, the evidence consists only of a log.
        """
        if self.has_ended or self.is_ended is not None:
            return False
        is_living_process = self.subject == "process" and self.started is not None
        sources = (self.state, self.sample, self.training)
        has_run = any(event.action.startswith(_OF_LIFE) for event in self.events or ())
        return not (is_living_process or has_run or any(each is not None for each in sources))

    @property
    def last_exit_code(self) -> int | None:
        """The exit code from the event, or else from the state.

        None if the subject is running or the exit code is unknown.
        """
        if self.exit_code is not None or self.state is None:
            return self.exit_code
        return self.state.exit_code if self.has_ended else None

    @property
    def last_signal(self) -> int | None:
        """The signal that ended the subject, or that its exit code implies; None if none did."""
        if self.signal is not None:
            return self.signal
        return read_signal(self.last_exit_code or 0)
