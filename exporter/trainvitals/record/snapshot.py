"""A snapshot of the machine, independent of the format."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.containers.evidence import OomKill, XidError
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.host.cpu import CpuReading
from trainvitals.sources.host.filesystem import FilesystemReading
from trainvitals.sources.host.kernel_lines import DatedLine
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.processes import ProcessesReading
from trainvitals.sources.runs.reading import RunsReading


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of an accelerator.

    Attributes:
        uuid: The accelerator's.
        pid: The process.
        name: Its name; None if it is in another PID namespace.
        container: The name of its container; None if it runs in none, or if that is unknown.
        used_bytes: The memory that it holds.
    """

    uuid: str
    pid: int
    name: str | None
    container: str | None
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """New records of the kernel log.

    Attributes:
        oom_kills: OOM kills, the oldest first.
        xids: Errors of NVIDIA GPUs.
        lines: Other lines about problems, with secrets masked.
        lost: The number of records that were overwritten before they were read.
    """

    oom_kills: tuple[OomKill, ...] = ()
    xids: tuple[XidError, ...] = ()
    lines: tuple[DatedLine, ...] = ()
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Flows:
    """Bytes per second since the last measurement; None at the first, and if unknown.

    Attributes:
        read: Read from all disks, each byte counted once.
        written: Written to them.
        received: Received by all physical interfaces.
        transmitted: Bytes transmitted by them.
    """

    read: float | None = None
    written: float | None = None
    received: float | None = None
    transmitted: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The machine at one time.

    A reading that is None could not be read; `troubles` has the reason.

    Attributes:
        time: Unix seconds.
        hostname: The machine's name.
        number: Its number in this recording, from 1.
        seconds: The duration of the reading.
        skipped: The number of snapshots skipped before this one because one took too long.
        unwritten: The number of snapshots before this one that could not be written.
        memory: Memory and swap.
        cpu: Processors.
        filesystems: Disk space.
        processes: The busiest and the largest processes.
        accelerators: GPUs and Gaudi cards.
        holders: The processes that hold memory of accelerators, the largest first for each.
        containers: Containers; None also if there is no container engine.
        cpu_percents: CPU usage of each running container since the last snapshot, in percent of one
            core, by name; without those for which it is unknown.
        new_deaths: The names of the containers that died since the last snapshot; in the first one,
            of all that died.
        oom_kills: OOM kills on the host since the last snapshot; None in the first one, and if the
            kernel does not count them.
        kernel: New records of the kernel log; None if it cannot be read.
        engine_errors: New lines of the engine's log that report problems, with secrets masked; None
            if it cannot be read.
        uptime_seconds: Seconds since the machine was started; monotonic.
        flows: Disk and network throughput.
        runs: Training runs.
        troubles: The sources that could not be read, with the reasons.
    """

    time: float
    hostname: str
    number: int
    seconds: float
    skipped: int = 0
    unwritten: int = 0
    memory: MemoryReading | None = None
    cpu: CpuReading | None = None
    filesystems: FilesystemReading | None = None
    processes: ProcessesReading | None = None
    accelerators: AcceleratorsReading | None = None
    holders: tuple[Holder, ...] = ()
    containers: ContainersReading | None = None
    cpu_percents: tuple[tuple[str, float], ...] = ()
    new_deaths: tuple[str, ...] = ()
    oom_kills: int | None = None
    kernel: Kernel | None = None
    engine_errors: tuple[str, ...] | None = None
    uptime_seconds: float | None = None
    flows: Flows = Flows()
    runs: RunsReading | None = None
    troubles: tuple[str, ...] = ()
