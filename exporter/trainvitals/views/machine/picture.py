"""The state of a machine at one time, as the live page and `trainvitals top` show it.

Everything is in base units. None means unknown, and is drawn as a gap, never as 0. A trace is the
past quarter of an hour in `TRACE_POINTS` steps of `TRACE_STEP_SECONDS`, the oldest first; each
point is the mean of the readings in its step, None if they had no value. A step without a reading
is interpolated where its neighbours are at most a minute apart, and None otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.alerts import Alert
from trainvitals.sources.containers.reading import Death
from trainvitals.verdicts.trouble import SubjectKind, Trouble, Unknown

TRACE_STEP_SECONDS = 10.0
TRACE_POINTS = 90
TEMPERATURE_SCALE_CELSIUS = (20.0, 90.0)  # drawn, where the limit of a device is unknown

Trace = tuple[float | None, ...]
Tone = Literal["good", "busy", "warning", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of an accelerator.

    Attributes:
        pid: The process ID that the driver reports.
        used_bytes: Device memory that it holds.
        name: The name of the process; None if it is not visible to the exporter.
        user: The user's name, or number where it has none; None if unknown.
        container: The container that it runs in; None if there is none or unknown.
        run: The training run that it belongs to; None if there is none or unknown.
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
        device: The driver's index.
        uuid: The driver's unique ID.
        model: The product name.
        driver: The driver's version.
        state: `ok`, or the reason why nothing can be read: `lost`, `hung`, `resetting`,
            `no_driver`, `unsupported`.
        last_seen: The time of its last complete reading, seconds since 1970.
        utilization_ratio: 0 to 1.
        memory_used_bytes: Device memory that programs use.
        memory_total_bytes: Its total memory.
        memory_limit_bytes: The configured limit of its use; None without one.
        temperature_celsius: The temperature of the chip.
        temperature_limit_celsius: The temperature at which it slows down, or the configured limit
            if that is lower.
        power_watts: Power draw.
        power_limit_watts: The limit in force.
        throttled: The reasons for which it is slowed down now.
        xids: Error codes that it reported, each with its count.
        holders: The processes that hold its memory, the largest first.
        utilization_trace: Ratios.
        memory_trace: Shares of the total, 0 to 1.
        temperature_trace: Degrees Celsius.
        power_trace: Watts.
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
        """The name of the device in troubles, alerts, runs and containers: `gpu0`."""
        return f"{self.kind}{self.device}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a run defines itself.

    Attributes:
        name: Its name, such as `iou`.
        split: `train`, `val` or whatever the run calls it; empty if there is none.
        value: The latest.
    """

    name: str
    split: str
    value: float


@dataclass(frozen=True, slots=True)
class Laggard:
    """A rank that is behind the others of its run on this machine.

    Attributes:
        rank: The rank's number, as text.
        slowdown_ratio: The duration of its own part of a step, relative to that of the fastest rank
            on this machine: 1.3 is 30 % longer.
        phase: The part of a step in which it falls behind: `data_wait`, `h2d`, `forward` or
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
        source: The source of its data: `client`, `tensorboard` or `log`.
        state: One word: `training`, `starting`, `compiling`, `evaluating`, `saving`, `idle`,
            `stalled`, `silent` (its process lives and reports nothing), `finished`, `ended` (the
            reason may still be found), `terminated` (by SIGTERM or Ctrl-C), `died`.
        tone: The severity of that state.
        phase: The phase of the rank that is furthest, as `training_phase` names it; None if
            unknown.
        bound: Its bottleneck: `loss is NaN`, `input-bound`, `throttled`, `slow rank`, `not in
            steps`, `underused` or `compute-bound`; None if unknown.
        started: The start of its first living rank, seconds since 1970.
        ended: The end of its last rank; None while one lives.
        ending: How the run, or the first of its ranks that died, ended: a few words with the exit
            code or signal; empty while all ranks live.
        stalled_seconds: Time since the last progress; None if it is not stalled.
        step: The current step.
        steps: The total number of steps.
        epoch: The current epoch.
        epochs: The total number of epochs.
        progress_ratio: The share that is done, 0 to 1.
        eta_seconds: The expected time until its end; None if it makes no progress.
        samples_per_second: The sum of its ranks here.
        tokens_per_second: The sum of its ranks here.
        step_seconds: The duration of a step, the median of its ranks.
        loss: The latest training loss.
        validation_loss: The latest validation loss.
        loss_trace: Training losses.
        metrics: The metrics that it defines itself.
        ranks_alive: The number of its processes that live here.
        ranks: The number of its ranks known here.
        world_size: The number of its ranks on all machines.
        restarts: The number of its restarts here.
        laggards: The ranks that are behind, the slowest first.
        devices: The accelerators that it holds, as `gpu0`.
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
        name: Its name.
        image: The image's name; empty if unknown.
        status: The engine's status of it; None if no engine is asked.
        health: The result of its health check; None if it has none.
        started: Its last start, seconds since 1970.
        restarts: The number of its restarts.
        memory_used_bytes: Its working set, in bytes.
        memory_limit_bytes: Its memory limit; 0 for no limit.
        cpu_cores: The number of cores in use.
        cpu_limit_cores: Its CPU limit; 0 for no limit.
        processes: The number of its processes and threads.
        oom_kills: The number of OOM kills, the highest of all counts.
        deaths: The number of its deaths.
        last_death: Its last death; None if there is none or unknown.
        devices: The accelerators that it holds, as `gpu0`.
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
        mountpoint: Its mount point.
        fstype: Its type.
        size_bytes: Its size; None if it does not respond.
        avail_bytes: The space that is free for users.
        files_free_ratio: The share of its inodes that is free; None if it does not count them.
        is_readonly: Whether it is read-only; None if it does not respond.
        trouble: Why it could not be read; empty if it was.
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
    """The machine without its accelerators.

    Attributes:
        cpu_percent: CPU utilization of all cores, 0 to 100.
        cores: The number of logical cores.
        io_wait_ratio: The share of CPU time spent waiting for disks.
        load: The load averages of 1, 5 and 15 minutes; empty if unknown.
        memory_total_bytes: RAM.
        memory_available_bytes: Memory available without swapping.
        swap_total_bytes: Swap.
        swap_free_bytes: Free swap.
        oom_kills: OOM kills since boot; None if the kernel does not count them.
        recent_oom_kills: OOM kills in the past quarter of an hour, as far as observed.
        disk_read_bytes_per_second: All disks.
        disk_written_bytes_per_second: All disks.
        received_bytes_per_second: Bytes received by all physical interfaces.
        transmitted_bytes_per_second: Bytes transmitted by all physical interfaces.
        filesystems: Disk space, the fullest first.
        cpu_trace: Percent.
        memory_trace: Shares of RAM in use, 0 to 1.
        booted: The time of the boot, seconds since 1970.
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
        name: Its name.
        success: Whether its reading is complete.
        reason: Why its reading is incomplete; empty if it is complete.
        duration_seconds: The duration of its latest reading.
        last_success: The time of its last complete reading, seconds since 1970.
    """

    name: str
    success: bool
    reason: str = ""
    duration_seconds: float | None = None
    last_success: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture of a machine at one time.

    Attributes:
        time: The moment, seconds since 1970.
        hostname: The machine's name.
        version: The version of the exporter that read it.
        accelerators: The accelerators by kind and index.
        accelerators_expected: The configured number of each kind.
        runs: The living ones first, then the newest.
        containers: Those that died recently first, then the running ones by name; None if there is
            neither an engine nor a control group of a container.
        host: CPU, memory, disks, network and file systems of the machine.
        alerts: The alerts that fire, the most severe first; None if no Prometheus is configured or
            it does not respond.
        alerts_trouble: Why they are unknown; empty if they are known or no Prometheus is
            configured.
        collectors: The collectors in the order of the page.
        troubles: The problems, the most severe first, as `trainvitals.verdicts` finds them.
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
        """Return the troubles of one subject, the most severe first.

        Args:
            subject_kind: Its kind.
            subject: The name of the subject in a trouble: `gpu0`, a name, a mount point.
            alerts: Only the troubles of these alerts; all troubles if empty.
        """
        return tuple(
            trouble
            for trouble in self.troubles
            if (trouble.subject_kind, trouble.subject) == (subject_kind, subject)
            and (not alerts or trouble.alert in alerts)
        )
