"""The state of a machine at one time, as the live page and `trainvitals top` show it.

All values are in base units. None means that a value is unknown. An unknown value is shown as a
gap, never as 0. A trace covers the past 15 minutes in `TRACE_POINTS` steps of `TRACE_STEP_SECONDS`,
the oldest first. Each point is the mean of the readings in a step, or None if these readings had no
value. The point of a step without a reading is interpolated if the readings before and after the
step are at most a minute apart; otherwise, the point is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.accelerators.reading import Idleness
from trainvitals.sources.alerts import Alert
from trainvitals.sources.containers.reading import Death
from trainvitals.verdicts.trouble import SubjectKind, Trouble, Unknown

TRACE_STEP_SECONDS = 10.0
TRACE_POINTS = 90
TEMPERATURE_SCALE_CELSIUS = (20.0, 90.0)  # the scale for a device without a known limit

Trace = tuple[float | None, ...]
Tone = Literal["good", "busy", "warning", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds accelerator memory.

    Attributes:
        pid: The ID of the process, as reported by the driver.
        used_bytes: The device memory that the process holds, in bytes; None if the driver does not
            report the memory.
        name: The process name; None if the process is not visible to the exporter.
        user: The name of the process's user, or the user ID if the user has no name; None if the
            user is unknown.
        container: The name of the container in which the process runs, or the container's short ID
            if the name is unknown; None if the process is not known to run in a container.
        run: The training run that the process belongs to; None if the process is not known to
            belong to a run.
        utilization_ratio: The share of time in which the process used the device, from 0 to 1; None
            if the driver does not report the share.
        compose_service: The Compose service of the container; None if the container belongs to no
            service.
        slurm_job: The ID of the Slurm job to which the process's control group belongs; None if the
            control group belongs to no job.
        pod: The UID of the Kubernetes pod to which the process's control group belongs; None if the
            control group belongs to no pod.
    """

    pid: int
    used_bytes: int | None
    name: str | None = None
    user: str | None = None
    container: str | None = None
    run: str | None = None
    utilization_ratio: float | None = None
    compose_service: str | None = None
    slurm_job: str | None = None
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The state of one accelerator.

    Attributes:
        kind: The kind of the device: `gpu` or `hpu`.
        device: The index that the driver assigns to the device.
        uuid: The unique ID of the device, as reported by the driver.
        model: The product name of the device.
        driver: The version of the device's driver.
        state: The state of the device: `ok`, or the reason why no values can be read: `lost`,
            `hung`, `resetting`, `no_driver`, `unsupported`.
        last_seen: The time of the device's last complete reading, in Unix seconds.
        utilization_ratio: The utilization of the device, from 0 to 1.
        memory_used_bytes: The device memory that programs use.
        memory_total_bytes: The total memory of the device.
        memory_limit_bytes: The configured limit for used memory; None if no limit is configured.
        temperature_celsius: The temperature of the device's chip.
        temperature_limit_celsius: The temperature at which the device slows down, or the configured
            limit if the configured limit is lower.
        power_watts: The power draw of the device.
        power_limit_watts: The power limit that is in force on the device.
        throttled: The reasons why the device is currently slowed down.
        xids: The error codes that the device reported, each with the number of reports.
        holders: The processes that hold device memory, the largest first.
        utilization_trace: The trace of utilization, as ratios from 0 to 1.
        memory_trace: The trace of the share of device memory in use, from 0 to 1.
        temperature_trace: The trace of the chip temperature, in degrees Celsius.
        power_trace: The trace of the power draw, in watts.
        idle: The reason why the device is idle although a process holds the device; None if the
            device is in use or no process holds the device.
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
    idle: Idleness | None = None

    @property
    def name(self) -> str:
        """The name of the device in problems, alerts, runs and containers, such as `gpu0`."""
        return f"{self.kind}{self.device}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a run defines itself.

    Attributes:
        name: The name of the metric, such as `iou`.
        split: The split of the metric: `train`, `val` or another split that the run names; an empty
            string if the metric has no split.
        value: The latest value of the metric.
    """

    name: str
    split: str
    value: float


@dataclass(frozen=True, slots=True)
class Laggard:
    """A rank that is slower than the other ranks of its run on this machine.

    Attributes:
        rank: The rank's number, as text.
        slowdown_ratio: The duration of the rank's own work in a step, relative to the fastest rank
            on this machine. For example, 1.3 means 30 % longer.
        phase: The part of a step in which the rank falls behind: `data_wait`, `h2d`, `forward` or
            `optimizer`; an empty string if this part is unknown.
    """

    rank: str
    slowdown_ratio: float
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """The state of one training run.

    Attributes:
        name: The run's name.
        source: The source of the run's data: `client`, `tensorboard`, `log`, `csv`, `json` or
            `mlflow`.
        state: The run's state, which is one word: `training`, `starting`, `compiling`,
            `evaluating`, `saving`, `idle`, `stalled`, `silent` (the process is alive but reports
            nothing), `finished`, `ended` (the reason may still be found), `terminated` (by SIGTERM
            or Ctrl-C), `died`.
        tone: The severity of the run's state.
        phase: The phase of the most advanced rank, as in `training_phase`; None if the phase is
            unknown.
        bound: The bottleneck of the run: `loss is NaN`, `input-bound`, `throttled`, `slow rank`,
            `not in steps`, `underused` or `compute-bound`; None if the bottleneck is unknown.
        started: The earliest start of the ranks that are alive, or of all ranks if none is alive,
            in Unix seconds.
        ended: The end of the run's last rank, in Unix seconds; None while a rank is alive.
        ending: How the run, or the first of its ranks that died, ended: a few words with the exit
            code or signal; an empty string while a rank is alive and no rank has died.
        stalled_seconds: The time since the run's last progress; None if the run is not stalled.
        step: The run's current step.
        steps: The total number of steps in the run.
        epoch: The run's current epoch.
        epochs: The total number of epochs in the run.
        progress_ratio: The completed share of the run, from 0 to 1.
        eta_seconds: The expected time until the run ends; None if the run makes no progress.
        samples_per_second: The run's samples per second, summed over the ranks on this machine.
        tokens_per_second: The run's tokens per second, summed over the ranks on this machine.
        step_seconds: The duration of a step, the median over the ranks on this machine.
        loss: The latest training loss, the mean over the ranks on this machine.
        validation_loss: The latest validation loss, the mean over the ranks on this machine.
        loss_trace: The trace of the training loss.
        metrics: The metrics that the run defines itself.
        ranks_alive: The number of the run's processes that are alive on this machine.
        ranks: The number of the run's ranks that are known on this machine.
        world_size: The number of the run's ranks on all machines.
        restarts: The number of the run's restarts on this machine.
        laggards: The ranks that are slower than the run's other ranks, the slowest first.
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
    """The state of one container.

    Attributes:
        name: The container's name.
        image: The name of the container's image; an empty string if the name is unknown.
        status: The status that the container engine reports; None if no engine is queried.
        health: The result of the container's health check; None if the container has no health
            check.
        started: The time of the container's last start, in Unix seconds.
        restarts: The number of times that the container was restarted.
        memory_used_bytes: The working set of the container.
        memory_limit_bytes: The container's memory limit; 0 means that the container has no limit.
        cpu_cores: The number of CPU cores that the container uses.
        cpu_limit_cores: The container's CPU limit, in cores; 0 means that the container has no
            limit.
        processes: The number of processes and threads in the container.
        oom_kills: The number of OOM kills in the container: the highest count that any source
            reports.
        deaths: The number of times that the container died.
        last_death: The container's last death; None if no death of the container is known.
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
    """The state of one mounted file system.

    Attributes:
        mountpoint: The mount point of the file system.
        fstype: The type of the file system.
        size_bytes: The size of the file system; None if the file system does not respond.
        avail_bytes: The space in the file system that is available to users.
        files_free_ratio: The share of inodes that is free; None if the file system does not count
            inodes.
        is_readonly: Whether the file system is read-only; None if the file system does not respond.
        trouble: The reason why the file system could not be read; an empty string after a success.
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
    """The state of the machine without its accelerators.

    Attributes:
        cpu_percent: The CPU utilization of all cores, from 0 to 100.
        cores: The number of logical CPU cores.
        io_wait_ratio: The share of CPU time spent waiting for disks.
        load: The load averages over 1, 5 and 15 minutes; an empty tuple if the load is unknown.
        memory_total_bytes: The total RAM of the machine.
        memory_available_bytes: The RAM that programs can use without swapping.
        swap_total_bytes: The total swap space of the machine.
        swap_free_bytes: The free swap space of the machine.
        oom_kills: The number of OOM kills since boot; None if the kernel does not count OOM kills.
        recent_oom_kills: The number of OOM kills observed in the past 15 minutes.
        disk_read_bytes_per_second: The bytes read from all disks per second.
        disk_written_bytes_per_second: The bytes written to all disks per second.
        received_bytes_per_second: The bytes received by all physical interfaces per second.
        transmitted_bytes_per_second: The bytes transmitted by all physical interfaces per second.
        filesystems: The file systems, the fullest first; unresponsive file systems precede all
            others.
        cpu_trace: The trace of CPU utilization, in percent.
        memory_trace: The trace of the share of RAM in use, from 0 to 1.
        booted: The time at which the machine booted, in Unix seconds.
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
        success: Whether the collector's latest reading is complete.
        reason: The reason why the latest reading is incomplete; an empty string if the reading is
            complete.
        duration_seconds: The duration of the collector's latest reading.
        last_success: The time of the collector's last complete reading, in Unix seconds.
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
        time: The time of the machine state, in Unix seconds.
        hostname: The machine's name.
        version: The version of the exporter that read the machine.
        accelerators: The accelerators, ordered by kind and index.
        accelerators_expected: The configured number of accelerators of each kind.
        runs: The training runs, first live runs, then ended runs, the latest end first.
        containers: The containers, first those that died recently, then the running ones by name,
            then the others; None if the machine has neither a container engine nor a control group
            of a container.
        host: The state of the CPU, memory, disks, network and file systems.
        alerts: The firing alerts, the most severe first; None if no Prometheus server is configured
            or the server does not respond.
        alerts_trouble: The reason why the alerts are unknown; an empty string if the alerts are
            known or no Prometheus server is configured.
        collectors: The state of each collector, in the order of the page.
        troubles: The problems that `trainvitals.verdicts` finds, the most severe first.
        unknowns: The subjects whose state is unknown, with the reasons.
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
            alerts: The names of the alerts whose problems are returned; if no name is given, all
                problems are returned.
        """
        return tuple(
            trouble
            for trouble in self.troubles
            if (trouble.subject_kind, trouble.subject) == (subject_kind, subject)
            and (not alerts or trouble.alert in alerts)
        )
