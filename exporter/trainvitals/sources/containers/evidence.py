"""The evidence about an exit, from which the verdict is derived.

Command lines and log lines are stored as text, after `trainvitals.masking` has masked likely
secrets. Environment variables are stored without their values.

Times are seconds since 1970 according to the engine's or the kernel's clock, or seconds since a
boot of unknown date (see `trainvitals.sources.host.kernel_text`). Sizes are in bytes. None means
that a value is unknown; an empty tuple means that the source was read and contained nothing
relevant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trainvitals.sources.host.kernel_lines import XidError as XidError  # noqa: PLC0414
from trainvitals.sources.host.oom_lines import OomKill as OomKill  # noqa: PLC0414 - part of it
from trainvitals.sources.signals import read_signal

Subject = Literal["container", "process", "run"]


# The prefixes of the names of events that occur only after a container has been started.
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
        time: The time of the event, according to the engine's clock.
        action: The action that the event reports, under Docker's name: `create`, `start`, `oom`,
            `kill`, `die`, `stop`, `destroy`, `health_status: unhealthy`, ...
        exit_code: The exit code in a `die` event; None for other actions.
        signal: The signal in a `kill` event; None for other actions, or if the engine does not
            report the signal, as with Podman.
    """

    time: float
    action: str
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """One run of a container's health check.

    Attributes:
        time: The time when the run of the health check ended; None if the time is unknown.
        exit_code: The exit code of the health check; -1 after a timeout.
        output: The masked output of the health check, limited in length.
    """

    time: float | None
    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class State:
    """A container's state according to the engine, from `State` in the inspection.

    Attributes:
        status: The status of the container: `created`, `running`, `paused`, `restarting`,
            `removing`, `exited`, `dead` or `stopped`.
        exit_code: The exit code, from `ExitCode`.
        is_oom_killed: The value of `OOMKilled`, which engines may set incorrectly.
        error: The reason why the container could not be started, from `Error`; empty if the
            container could be started.
        started: The start time, from `StartedAt`; None if the container has never started.
        finished: The end time, from `FinishedAt`; None if the container has never ended.
        health: The health, from `Health.Status`; None if the container has no health check.
        failing_streak: The number of consecutive failed health checks.
        probes: The last runs of the container's health check, the oldest first.
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
    """A container's settings, from `Config` and `HostConfig` in the inspection.

    Attributes:
        command: The masked entry point and arguments of the container, as one list.
        variables: The names of the container's environment variables.
        is_unbuffered: Whether Python's output is unbuffered, because `PYTHONUNBUFFERED` is set or
            the command contains `-u`.
        memory_limit_bytes: The memory limit, from `Memory`; None for no limit.
        memory_swap_bytes: The limit on memory and swap, from `MemorySwap`; None if this limit is
            not set, -1 for no limit.
        shm_size_bytes: The size of `/dev/shm`, from `ShmSize`.
        pids_limit: The maximum number of processes and threads, from `PidsLimit`; None for no
            limit.
        has_init: Whether Docker's init process runs as PID 1, from `Init`.
        restart_policy: The restart policy, from `RestartPolicy.Name`; `no` if the container has no
            restart policy.
        log_driver: The log driver, from `LogConfig.Type`.
        log_options: The names and masked values of the log options, sorted by name, from
            `LogConfig.Config`.
        network_mode: The network mode, from `NetworkMode`.
        wants_gpus: Whether the container requests accelerators.
        is_read_only: Whether the root file system is read-only, from `ReadonlyRootfs`.
        has_tty: Whether the container has a terminal, from `Tty`.
        is_removed_at_end: Whether the container is removed when it ends, from `AutoRemove`, which
            `docker run --rm` sets.
        stop_timeout_seconds: The time that `docker stop` waits, from `StopTimeout`; None for the
            engine's default of 10 s.
        user: The user of the main process, from `User`; empty for root.
        mounts: The source and the target of each of the container's mounts.
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
    """The last sample of a control group's resource usage before the container ended.

    Attributes:
        time: The time at which the sample was taken.
        cgroup_version: The cgroup version, 1 or 2; 0 if the engine's statistics were used instead.
        memory_usage_bytes: The memory charged to the control group, including the file cache.
        memory_working_set_bytes: The charged memory without the inactive file cache.
        memory_unreclaimable_bytes: The memory that the kernel cannot reclaim: anonymous and shared
            memory and, in cgroup v2, also locked memory and the kernel's own memory.
        memory_peak_bytes: The maximum of the charged memory; None if the kernel does not record the
            maximum.
        memory_limit_bytes: The memory limit of the control group; None for no limit.
        memory_pressure_ratio: The fraction of the last 10 s in which all tasks in the control group
            waited for memory, 0 to 1; None in cgroup v1.
        oom_kills: The number of the control group's processes that the OOM killer killed.
        processes: The number of processes and threads in the control group.
        processes_limit: The maximum number of processes and threads in the control group; None for
            no limit.
        processes_refused: The number of forks that failed because of `processes_limit`.
        cpu_throttled_seconds: The time in which the CPU limit throttled the control group, in
            seconds.
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
        path: The path of a folder on the file system.
        free_bytes: The space on the file system that is available to an unprivileged user.
        total_bytes: The total size of the file system.
        free_inodes: The number of files that can still be created; None if the file system does not
            limit the number of files.
    """

    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The machine's state at the time of the exit.

    Attributes:
        time: The time at which the machine's state was read.
        memory_total_bytes: The total memory, from `MemTotal` in `/proc/meminfo`.
        memory_available_bytes: The available memory, from `MemAvailable` in `/proc/meminfo`.
        swap_free_bytes: The free swap space, from `SwapFree` in `/proc/meminfo`.
        disks: The file systems that containers write to.
        biggest: The names and the memory usage, in bytes, of the processes that use the most
            memory.
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
        source: The evidence for how the process ended, in a sentence; empty while the process is
            running.
        pid: The process's PID on the host; None if the PID is unknown.
        phase: The last phase of the process, such as `data_wait`, `backward` or `checkpoint`; None
            if the phase is unknown.
        phase_seconds: The time since the process entered `phase`, in seconds; None if the time is
            unknown.
        idle_seconds: The time since the last progress, in seconds, until the process ended or, if
            it is running, until the run file was read; None if the time is unknown.
        idle_limit_seconds: The maximum time that `phase` may last without progress, in seconds;
            None for no limit.
        slowest_step_seconds: The duration of the slowest recent step, in seconds; None if the
            duration is unknown.
        stall: The cause of a stall: `stopped` if the process is stopped, `no_progress` if `phase`
            lasts too long; None if the process makes progress or has ended.
        steps: The number of steps that the process completed; None if the number is unknown.
        nonfinite_losses: The number of losses that were NaN or infinite; None if the number is
            unknown.
        is_loss_finite: Whether the last loss was finite; None if no loss was recorded.
        is_switched_off: Whether the training monitor disabled itself after internal errors.
        is_end_seen: Whether the exporter observed that the process ended, or the process recorded
            its own end.
        world_size: The number of the run's ranks on all machines; None if the number is unknown.
        ranks_here: The number of the run's ranks with a run file on this machine; None if the
            number is unknown.
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
        what: The name of the missing source, such as `the kernel log`.
        why: The reason why the source could not be read.
        remedy: The step that makes the source readable when the next exit is diagnosed.
    """

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about one exit of a container, a process or a training run, called the subject.

    If the subject is still running, the evidence is about its current problem.

    Attributes:
        subject: The kind of the subject, such as a container or a training run.
        name: The name of the container, process or run.
        id: The container's ID; empty if the subject is not a container or the ID is unknown.
        image: The name of the container's image; empty if the name is unknown.
        compose_project: The container's Compose project; empty if the container belongs to no
            project.
        compose_service: The container's Compose service; empty if the container belongs to no
            service.
        engine: The name and version of the engine, which is `docker` or `podman`; empty if no
            engine was queried.
        cgroup: The control group's path in the format of `/proc/PID/cgroup`; empty if the path is
            unknown.
        started: The time of the subject's last start; None if the time is unknown.
        ended: The time when the subject ended; None if the subject is running or the time is
            unknown.
        exit_code: The exit code from the event `die`, otherwise from the state; None if the subject
            is running or the exit code is unknown. An exit code reported by a user may be 256 plus
            a signal number, or a negative signal number.
        is_exit_code_witnessed: Whether the exit code was reported by the event `die`.
        signal: The signal that ended a rank or a process outside containers; None for containers,
            because the exit code of a container contains the signal.
        exception: The exception that ended a training run; empty if no exception is known.
        events: The container's creation event and its events since the last start, as reported by
            the engine, the oldest first; None if no events are known.
        state: The container's state according to the engine; None if the state is not known.
        settings: The container's settings; None if the settings are not known.
        log: The masked last log lines of the last start; None if the log could not be read.
        oom_kills: The OOM kills in the kernel log that concern the subject; None if the kernel log
            could not be read.
        xids: The GPU errors around the subject's end; None if the kernel log could not be read.
        kernel_lines: The other relevant lines of the kernel log around the subject's end, masked.
        sample: The last sample of the control group; None if no sample was taken.
        host: The machine's state at the time of the exit; None if the state is not known.
        host_oom_kills: The increase in the host's OOM kill count between the last sample before the
            end and a reading shortly after the end; None if the count was not read.
        restarts: The number of restarts by the engine; None if the number is unknown.
        earlier_deaths: The times of the subject's earlier exits, the oldest first.
        engine_started: The time when the engine was started; None if the time is unknown.
        engine_errors: The lines of the engine's log around the subject's end, masked.
        training: The end or state of the training process, from the run file; None if the subject
            is not a training run.
        is_ended: Whether the subject has ended according to the user or to a pod description; None
            if neither reports whether the subject has ended.
        pod: The masked lines from `kubectl describe pod`; None if the lines are not known.
        thread_log: The masked traceback of the last exception that ended a thread other than the
            main thread; empty if no such exception is known.
        gaps: The sources of further evidence that could not be read.
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
    thread_log: tuple[str, ...] = ()
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
        """Whether the subject has ended; False if the subject was never started."""
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

        For example, a log alone does not show whether the subject is running or has ended.
        """
        if self.has_ended or self.is_ended is not None:
            return False
        is_living_process = self.subject == "process" and self.started is not None
        sources = (self.state, self.sample, self.training)
        has_run = any(event.action.startswith(_OF_LIFE) for event in self.events or ())
        return not (is_living_process or has_run or any(each is not None for each in sources))

    @property
    def last_exit_code(self) -> int | None:
        """The subject's exit code from the event `die`, otherwise from the state.

        The exit code is None if the subject is running or the exit code is unknown.
        """
        if self.exit_code is not None or self.state is None:
            return self.exit_code
        return self.state.exit_code if self.has_ended else None

    @property
    def last_signal(self) -> int | None:
        """The signal that ended the subject.

        The signal is the attribute `signal` or, if that is None, the signal that the exit code
        implies. The result is None if no signal is known.
        """
        if self.signal is not None:
            return self.signal
        return read_signal(self.last_exit_code or 0)
