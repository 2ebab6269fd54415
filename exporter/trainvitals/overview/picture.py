"""One picture of the machine at one moment: what the live page and `trainvitals top` draw.

Everything is in base units. None means that it is not known, and what is not known is drawn as a
gap, never as 0. A trace is the past quarter of an hour in `TRACE_POINTS` steps of
`TRACE_STEP_SECONDS`, the oldest first; each point is the mean of what was seen in its step, None
where nothing was known. A step in which nobody looked lies on the line between its neighbours,
where these are no more than a minute apart, and is None otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.containers.reading import Death

TRACE_STEP_SECONDS = 10.0
TRACE_POINTS = 90

Trace = tuple[float | None, ...]
Tone = Literal["good", "busy", "warning", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of an accelerator.

    Attributes:
        pid: The process, as the driver numbers it.
        used_bytes: What it holds.
        name: Its name; None where it is not among the processes that we see.
        user: Whose it is; None unknown.
        container: The container it runs in; None for none or unknown.
        run: The training run it belongs to; None for none or unknown.
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
        uuid: Its own name.
        model: The product name.
        driver: The driver's version.
        state: `ok`, or why nothing can be read: `lost`, `hung`, `resetting`, `no_driver`,
            `unsupported`.
        last_seen: When it was last read whole, seconds since 1970.
        utilization_ratio: 0 to 1.
        memory_used_bytes: What programs hold.
        memory_total_bytes: What there is.
        memory_limit_bytes: What may be used, where somebody said so.
        temperature_celsius: The chip.
        temperature_limit_celsius: Where it slows down.
        power_watts: What it draws.
        power_limit_watts: The limit in force.
        throttled: The reasons for which it is slowed down now.
        xids: Error codes that it reported, and how often.
        holders: Who holds its memory, the largest first.
        utilization_trace: Ratios.
        memory_trace: Ratios of what there is.
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


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a run tells under a name of its own.

    Attributes:
        name: Such as `iou`.
        split: `train`, `val` or whatever the run calls it; empty for none.
        value: The latest.
    """

    name: str
    split: str
    value: float


@dataclass(frozen=True, slots=True)
class Laggard:
    """A rank that is behind the others of its run on this machine.

    Attributes:
        rank: Its number, as text.
        slowdown_ratio: How much longer its own part of a step takes than the fastest rank's here:
            1.3 is 30 % longer.
        phase: The part of a step in which it is: `data_wait`, `h2d`, `forward` or `optimizer`;
            empty unknown.
    """

    rank: str
    slowdown_ratio: float
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One training run.

    Attributes:
        name: The run's name.
        source: Who tells of it: `client`, `tensorboard` or `log`.
        state: One word: `training`, `starting`, `compiling`, `evaluating`, `saving`, `idle`,
            `stalled`, `silent` (its process lives and tells nothing), `finished`, `ended` (it may
            still become known how), `terminated` (somebody asked for it), `died`.
        tone: How bad that is.
        phase: The phase of the rank that is furthest, as `training_phase` names it; None unknown.
        bound: What it loses its time to: `loss is NaN`, `input-bound`, `throttled`, `slow rank`,
            `not in steps`, `underused` or `compute-bound`; None unknown.
        started: When its first living rank started, seconds since 1970.
        ended: When its last rank ended; None while one lives.
        ending: How it ended, or the first of its ranks that died, in a few words with the exit code
            or signal; empty while all of them live.
        stalled_seconds: Since when nothing moves; None where it moves.
        step: The step it is at.
        steps: How many there will be.
        epoch: The epoch it is at.
        epochs: How many there will be.
        progress_ratio: How much is done, 0 to 1.
        eta_seconds: How long it will still take.
        samples_per_second: Of all its ranks here together.
        tokens_per_second: The same.
        step_seconds: How long a step takes, the median of its ranks.
        loss: The newest training loss.
        validation_loss: The newest.
        loss_trace: Training losses.
        metrics: Numbers of its own.
        ranks_alive: How many of its processes live here.
        ranks: How many of them are told of here.
        world_size: How many it has on all machines.
        restarts: How often it was started again here.
        laggards: Who is behind, the slowest first.
        devices: The accelerators it holds, as `gpu0`.
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
        image: The image's name; empty unknown.
        status: What the engine says it does; None where no engine is asked.
        health: What its health check says; None where it has none.
        started: When it was last started, seconds since 1970.
        restarts: How often it was started again.
        memory_used_bytes: Its working set.
        memory_limit_bytes: 0 for no limit.
        cpu_cores: How many cores it uses.
        cpu_limit_cores: 0 for no limit.
        processes: How many processes and threads it has.
        oom_kills: Kills for memory, by whoever told of most.
        deaths: How often it died.
        last_death: How it last ended; None where it has not, or nobody saw.
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
        mountpoint: Where it is mounted.
        fstype: Its type.
        size_bytes: How large it is; None where it does not answer.
        avail_bytes: What users can still take.
        files_free_ratio: Share of its inodes that is free; None where it does not count them.
        is_readonly: It takes no writes; None where it does not answer.
        trouble: Why nothing could be read; empty for nothing.
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
        cpu_percent: Of all cores, 0 to 100.
        cores: How many logical ones.
        io_wait_ratio: Share of CPU time in which one waited for a disk.
        load: The load averages of 1, 5 and 15 minutes; empty unknown.
        memory_total_bytes: RAM.
        memory_available_bytes: What can be had without swapping.
        swap_total_bytes: Swap.
        swap_free_bytes: What of it is free.
        oom_kills: Kills for memory since boot; None where the kernel does not count them.
        recent_oom_kills: How many of them were in the past quarter of an hour, as far as seen.
        disk_read_bytes_per_second: All disks.
        disk_written_bytes_per_second: All disks.
        received_bytes_per_second: All physical interfaces.
        transmitted_bytes_per_second: All physical interfaces.
        filesystems: Disk space, the fullest first.
        cpu_trace: Percent.
        memory_trace: Ratios of RAM in use.
        booted: When the machine booted, seconds since 1970.
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
class Alert:
    """An alert that fires.

    Attributes:
        name: Such as `GPUHighTemperature`.
        severity: `critical`, `warning` or `info`.
        subject: What it is about: device, run or container; empty for the machine.
        summary: The sentence of its message.
        since: When it began to fire, seconds since 1970.
    """

    name: str
    severity: str
    subject: str
    summary: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Collector:
    """How one collector fares.

    Attributes:
        name: Its name.
        success: Its reading is here and whole.
        reason: Why not; empty when it is.
        duration_seconds: How long its latest reading took.
        last_success: When it last brought a whole reading, seconds since 1970.
    """

    name: str
    success: bool
    reason: str = ""
    duration_seconds: float | None = None
    last_success: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """The machine at one moment.

    Attributes:
        time: When, seconds since 1970.
        hostname: The machine's name.
        version: The version of the exporter that read it.
        accelerators: By kind and index.
        accelerators_expected: How many there should be, by kind, where somebody said so.
        runs: The living ones first, then the newest.
        containers: Those that died of late first, then the running ones by name; None where there
            is neither an engine nor a control group of a container.
        host: The rest of the machine.
        alerts: What fires, the worst first; None where no Prometheus is known or it does not answer.
        alerts_trouble: Why there are none to be had; empty where they are, or nobody named a
            Prometheus.
        collectors: In the order of the page.
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
