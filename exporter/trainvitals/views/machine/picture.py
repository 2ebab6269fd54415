"""The state of a machine at one time, as the live page and `trainvitals top` show it.

All values are in base units. None means unknown, and is shown as a gap, never as 0. A trace covers
the past 15 minutes in `TRACE_POINTS` steps of `TRACE_STEP_SECONDS`, the oldest first; each point is
the mean of the readings in a step, or None if those readings had no value. A step without a reading
is interpolated if the readings before and after it are at most a minute apart, and None otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.alerts import Alert
from trainvitals.sources.containers.reading import Death
from trainvitals.verdicts.trouble import SubjectKind, Trouble, Unknown

TRACE_STEP_SECONDS = 10.0
TRACE_POINTS = 90
TEMPERATURE_SCALE_CELSIUS = (20.0, 90.0)  # shown for a device without a known limit

Trace = tuple[float | None, ...]
Tone = Literal["good", "busy", "warning", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds accelerator memory.

    Attributes:
        pid: The process ID that the driver reports.
        used_bytes: Device memory that the process holds.
        name: The process name; None if the process is not visible to the exporter.
        user: The user name, or the user ID for a user without a name; None if unknown.
        container: The name, else the short ID, of the container that the process runs in; None if
            there is no container or it is unknown.
        run: The training run that the process belongs to; None if there is no run or it is unknown.
    """

    pid: int
    used_bytes: int
    name: str | None = None
    user: str | None = None
    container: str | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator.

    Attributes:
        kind: `gpu` or `hpu`.
        device: The device index that the driver assigns.
        uuid: The unique ID that the driver reports.
        model: The product name.
        driver: The driver version.
        state: `ok`, or the reason why no values can be read: `lost`, `hung`, `resetting`,
            `no_driver`, `unsupported`.
        last_seen: The time of the last complete reading, Unix seconds.
        utilization_ratio: Utilization, 0 to 1.
        memory_used_bytes: Device memory that programs use.
        memory_total_bytes: Total device memory.
        memory_limit_bytes: The configured limit for used memory; None if no limit is configured.
        temperature_celsius: The chip temperature.
        temperature_limit_celsius: The temperature at which the device slows down, or the configured
            limit if that is lower.
        power_watts: The power draw.
        power_limit_watts: The power limit in force.
        throttled: The reasons for which the device is slowed down now.
        xids: Error codes that the device reported, each with its count.
        holders: The processes that hold device memory, the largest first.
        utilization_trace: The trace of utilization, ratios from 0 to 1.
        memory_trace: The trace of used memory, shares of the total from 0 to 1.
        temperature_trace: The trace of the chip temperature, degrees Celsius.
        power_trace: The trace of the power draw, watts.
    """

    kind: str
    device: int
    uuid: str
    model: str
    driver: str = ""
    state: str = "ok"
    last_seen: float | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_limit_bytes: int | None = None
    temperature_celsius: float | None = None
    temperature_limit_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    throttled: tuple[str, ...] = ()
    xids: tuple[tuple[int, int], ...] = ()
    holders: tuple[Holder, ...] = ()
    utilization_trace: Trace = ()
    memory_trace: Trace = ()
    temperature_trace: Trace = ()
    power_trace: Trace = ()

    @property
    def name(self) -> str:
        """The name of the device in problems, alerts, runs and containers, such as `gpu0`."""
        return f"{self.kind}{self.device}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a run defines itself.

    Attributes:
        name: The name, such as `iou`.
        split: `train`, `val` or another split that the run names; empty if the metric has no split.
        value: The latest value.
    """

    name: str
    split: str
    value: float


@dataclass(frozen=True, slots=True)
class Laggard:
    """A rank that is slower than the other ranks of its run on this machine.

    Attributes:
        rank: The rank's number, as text.
        slowdown_ratio: The duration of the rank's own part of a step, relative to the fastest rank
            on this machine: 1.3 means 30 % longer.
        phase: The part of a step in which the rank falls behind: `data_wait`, `h2d`, `forward` or
            `optimizer`; empty if unknown.
    """

    rank: str
    slowdown_ratio: float
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One training run.

    Attributes:
        name: The run's name.
        source: The source of the run's data: `client`, `tensorboard` or `log`.
        state: One word: `training`, `starting`, `compiling`, `evaluating`, `saving`, `idle`,
            `stalled`, `silent` (the process is alive but reports nothing), `finished`, `ended` (the
            reason may still be found), `terminated` (by SIGTERM or Ctrl-C), `died`.
        tone: The severity of the state.
        phase: The phase of the most advanced rank, as in `training_phase`; None if unknown.
        bound: The bottleneck of the run: `loss is NaN`, `input-bound`, `throttled`, `slow rank`,
            `not in steps`, `underused` or `compute-bound`; None if unknown.
        started: The earliest start of the ranks that are alive, or of all ranks if none is alive,
            Unix seconds.
        ended: The end of the last rank, Unix seconds; None while a rank is alive.
        ending: How the run, or the first of its ranks that died, ended: a few words with the exit
            code or signal; empty while all ranks are alive.
        stalled_seconds: Time since the last progress; None if the run is not stalled.
        step: The current step.
        steps: The total number of steps.
        epoch: The current epoch.
        epochs: The total number of epochs.
        progress_ratio: The completed share of the run, 0 to 1.
        eta_seconds: The expected time until the run ends; None if the run makes no progress.
        samples_per_second: Samples per second, summed over the ranks on this machine.
        tokens_per_second: Tokens per second, summed over the ranks on this machine.
        step_seconds: The duration of a step, the median over the ranks on this machine.
        loss: The latest training loss, the mean over the ranks on this machine.
        validation_loss: The latest validation loss, the mean over the ranks on this machine.
        loss_trace: The trace of the training loss.
        metrics: The metrics that the run defines itself.
        ranks_alive: The number of the run's processes that are alive on this machine.
        ranks: The number of the run's ranks that are known on this machine.
        world_size: The number of the run's ranks on all machines.
        restarts: The number of the run's restarts on this machine.
        laggards: The ranks that are slower than the others, the slowest first.
        devices: The accelerators that the run holds, such as `gpu0`.
    """

    name: str
    source: str = "client"
    state: str = "training"
    tone: Tone = "good"
    phase: str | None = None
    bound: str | None = None
    started: float | None = None
    ended: float | None = None
    ending: str = ""
    stalled_seconds: float | None = None
    step: int | None = None
    steps: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    progress_ratio: float | None = None
    eta_seconds: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    loss: float | None = None
    validation_loss: float | None = None
    loss_trace: Trace = ()
    metrics: tuple[Metric, ...] = ()
    ranks_alive: int | None = None
    ranks: int = 0
    world_size: int | None = None
    restarts: int | None = None
    laggards: tuple[Laggard, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """One container.

    Attributes:
        name: The container's name.
        image: The image's name; empty if unknown.
        status: The status that the engine reports; None if no engine is queried.
        health: The result of the health check; None if the container has no health check.
        started: The time of the last start, Unix seconds.
        restarts: The number of restarts.
        memory_used_bytes: The working set of the container.
        memory_limit_bytes: The memory limit; 0 means no limit.
        cpu_cores: The number of cores in use.
        cpu_limit_cores: The CPU limit; 0 means no limit.
        processes: The number of processes and threads.
        oom_kills: The number of OOM kills, the highest count that any source reports.
        deaths: The number of times that the container died.
        last_death: The container's last death; None if there was none or it is unknown.
        devices: The accelerators that the container holds, such as `gpu0`.
    """

    name: str
    image: str = ""
    status: str | None = None
    health: str | None = None
    started: float | None = None
    restarts: int | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cpu_cores: float | None = None
    cpu_limit_cores: float | None = None
    processes: int | None = None
    oom_kills: int = 0
    deaths: int = 0
    last_death: Death | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One mounted file system.

    Attributes:
        mountpoint: The mount point.
        fstype: The type of file system.
        size_bytes: The size; None if the file system does not respond.
        avail_bytes: The space available to users.
        files_free_ratio: The share of inodes that is free; None if the file system does not count
            inodes.
        is_readonly: Whether the file system is read-only; None if it does not respond.
        trouble: Why the file system could not be read; empty if it was read.
    """

    mountpoint: str
    fstype: str = ""
    size_bytes: int | None = None
    avail_bytes: int | None = None
    files_free_ratio: float | None = None
    is_readonly: bool | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine except its accelerators.

    Attributes:
        cpu_percent: CPU utilization of all cores, 0 to 100.
        cores: The number of logical cores.
        io_wait_ratio: The share of CPU time spent waiting for disks.
        load: The load averages over 1, 5 and 15 minutes; empty if unknown.
        memory_total_bytes: Total RAM.
        memory_available_bytes: RAM available without swapping.
        swap_total_bytes: Total swap space.
        swap_free_bytes: Free swap space.
        oom_kills: OOM kills since boot; None if the kernel does not count OOM kills.
        recent_oom_kills: The observed OOM kills of the past 15 minutes.
        disk_read_bytes_per_second: Bytes read from all disks.
        disk_written_bytes_per_second: Bytes written to all disks.
        received_bytes_per_second: Bytes received by all physical interfaces.
        transmitted_bytes_per_second: Bytes transmitted by all physical interfaces.
        filesystems: The file systems, first those that do not respond, then the fullest.
        cpu_trace: The trace of CPU utilization, percent.
        memory_trace: The trace of RAM in use, shares from 0 to 1.
        booted: The boot time, Unix seconds.
    """

    cpu_percent: float | None = None
    cores: int | None = None
    io_wait_ratio: float | None = None
    load: tuple[float, ...] = ()
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    oom_kills: int | None = None
    recent_oom_kills: int = 0
    disk_read_bytes_per_second: float | None = None
    disk_written_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    transmitted_bytes_per_second: float | None = None
    filesystems: tuple[Filesystem, ...] = ()
    cpu_trace: Trace = ()
    memory_trace: Trace = ()
    booted: float | None = None


@dataclass(frozen=True, slots=True)
class Collector:
    """The state of one collector.

    Attributes:
        name: The collector's name.
        success: Whether the latest reading is complete.
        reason: Why the latest reading is incomplete; empty if it is complete.
        duration_seconds: The duration of the latest reading.
        last_success: The time of the last complete reading, Unix seconds.
    """

    name: str
    success: bool
    reason: str = ""
    duration_seconds: float | None = None
    last_success: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of a machine at one time.

    Attributes:
        time: The time of the machine state, Unix seconds.
        hostname: The machine's name.
        version: The version of the exporter that read the machine.
        accelerators: The accelerators, by kind and index.
        accelerators_expected: The configured number of accelerators of each kind.
        runs: The runs, first those that are alive, then the latest to end.
        containers: The containers, first those that died recently, then the running ones by name,
            then the others; None if the machine has neither an engine nor a control group of a
            container.
        host: CPU, memory, disks, network and file systems.
        alerts: The firing alerts, the most severe first; None if no Prometheus is configured or it
            does not respond.
        alerts_trouble: Why the alerts are unknown; empty if they are known or no Prometheus is
            configured.
        collectors: The collectors, in the order of the page.
        troubles: The problems that `trainvitals.verdicts` finds, the most severe first.
        unknowns: The unknown subjects, with the reasons.
    """

    time: float
    hostname: str
    version: str
    accelerators: tuple[Accelerator, ...] = ()
    accelerators_expected: tuple[tuple[str, int], ...] = ()
    runs: tuple[Run, ...] = ()
    containers: tuple[Container, ...] | None = None
    host: Host = Host()
    alerts: tuple[Alert, ...] | None = None
    alerts_trouble: str = ""
    collectors: tuple[Collector, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    unknowns: tuple[Unknown, ...] = ()

    def find_troubles(
        self, subject_kind: SubjectKind, subject: str = "", *alerts: str
    ) -> tuple[Trouble, ...]:
        """Return the problems of one subject, the most severe first.

        Args:
            subject_kind: The kind of the subject.
            subject: The subject's name in problems: `gpu0`, another name, or a mount point.
            alerts: The alerts whose problems are returned; if none is given, all problems are.
        """
        return tuple(
            trouble
            for trouble in self.troubles
            if (trouble.subject_kind, trouble.subject) == (subject_kind, subject)
            and (not alerts or trouble.alert in alerts)
        )
