"""The data of a snapshot, independent of the output format."""

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
    """A process that holds accelerator memory.

    Attributes:
        uuid: The accelerator's UUID.
        pid: The ID of the process.
        name: The process name; None if the process is in another PID namespace.
        container: The name of the container in which the process runs, or the container's short ID
            if the name is unknown; None if the process is not known to run in a container.
        used_bytes: The accelerator memory that the process holds; None if the driver does not report
            the memory.
    """

    uuid: str
    pid: int
    name: str | None
    container: str | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """The new records of the kernel log.

    Attributes:
        oom_kills: The OOM kills in the new records, the oldest first.
        xids: The errors that NVIDIA GPUs reported.
        lines: The other log lines that report problems, with secrets masked.
        lost: The number of log records that were overwritten before they were read.
    """

    oom_kills: tuple[OomKill, ...] = ()
    xids: tuple[XidError, ...] = ()
    lines: tuple[DatedLine, ...] = ()
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Flows:
    """Rates in bytes per second since the last measurement.

    A rate is None in the first measurement, and if the rate is unknown.

    Attributes:
        read: The bytes read from all disks per second; each byte is counted once.
        written: The bytes written to all disks per second; each byte is counted once.
        received: The bytes received by all physical interfaces per second.
        transmitted: The bytes transmitted by all physical interfaces per second.
    """

    read: float | None = None
    written: float | None = None
    received: float | None = None
    transmitted: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the machine at one time.

    A reading that could not be obtained is None, and `troubles` contains the reason.

    Attributes:
        time: The time of the snapshot, in Unix seconds.
        hostname: The machine's name.
        number: The snapshot's number in this recording, from 1.
        seconds: The time that the snapshot took, in seconds.
        skipped: The number of snapshots skipped directly before this snapshot because the previous
            snapshot took too long.
        unwritten: The number of snapshots directly before this snapshot that could not be written.
        memory: The reading of memory and swap.
        cpu: The CPU utilization, load averages and number of cores.
        filesystems: The reading of the file systems, with the space of each file system.
        processes: The processes that use the most CPU time and the most memory.
        accelerators: The readings of GPUs and Gaudi cards.
        holders: The processes that hold accelerator memory, the largest first for each accelerator.
        containers: The readings of containers; also None if the machine has no container engine.
        cpu_percents: The CPU usage of each running container since the last snapshot, in percent of
            one core, by name; containers whose usage is unknown are left out.
        new_deaths: The names of the containers that died since the last snapshot; the first
            snapshot contains the names of all containers that have died.
        oom_kills: The number of OOM kills on the host since the last snapshot; None in the first
            reading, and if the kernel does not count OOM kills.
        kernel: The new records of the kernel log; None if the kernel log cannot be read.
        engine_errors: The new lines of the container engine's log that report problems, with
            secrets masked; None if the engine's log cannot be read.
        uptime_seconds: The time since boot, from a monotonic clock.
        flows: The throughput of disks and network interfaces.
        runs: The readings of training runs.
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
