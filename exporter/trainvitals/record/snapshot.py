"""A snapshot of the machine, independent of the output format."""

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
        pid: The process ID.
        name: The process name; None if the process is in another PID namespace.
        container: The name, else the short ID, of the container that the process runs in; None if
            there is no container or it is unknown.
        used_bytes: Accelerator memory that the process holds.
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
        xids: Errors that NVIDIA GPUs reported.
        lines: Other lines that report problems, with secrets masked.
        lost: The number of records that were overwritten before they were read.
    """

    oom_kills: tuple[OomKill, ...] = ()
    xids: tuple[XidError, ...] = ()
    lines: tuple[DatedLine, ...] = ()
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Flows:
    """Bytes per second since the last measurement; None in the first measurement or if unknown.

    Attributes:
        read: Bytes read from all disks, each byte counted once.
        written: Bytes written to all disks, each byte counted once.
        received: Bytes received by all physical interfaces.
        transmitted: Bytes transmitted by all physical interfaces.
    """

    read: float | None = None
    written: float | None = None
    received: float | None = None
    transmitted: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the machine at one time.

    A reading that is None could not be obtained; `troubles` contains the reason.

    Attributes:
        time: The time of the snapshot, Unix seconds.
        hostname: The machine's name.
        number: The snapshot's number in this recording, from 1.
        seconds: The time that the snapshot took.
        skipped: The number of snapshots skipped before this one because one took too long.
        unwritten: The number of snapshots before this one that could not be written.
        memory: Memory and swap.
        cpu: CPU utilization, load averages and number of cores.
        filesystems: The space of each file system.
        processes: The processes that use the most CPU time and the most memory.
        accelerators: GPUs and Gaudi cards.
        holders: The processes that hold accelerator memory, the largest first for each accelerator.
        containers: The containers; also None if there is no container engine.
        cpu_percents: The CPU usage of each running container since the last snapshot, in percent of
            one core, by name; containers whose usage is unknown are left out.
        new_deaths: The names of the containers that died since the last snapshot; in the first
            snapshot, of all containers that have died.
        oom_kills: OOM kills on the host since the last snapshot; None for the first reading, and if
            the kernel does not count OOM kills.
        kernel: New records of the kernel log; None if the log cannot be read.
        engine_errors: New lines of the container engine's log that report problems, with secrets
            masked; None if the log cannot be read.
        uptime_seconds: The time since boot, from a monotonic clock.
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
