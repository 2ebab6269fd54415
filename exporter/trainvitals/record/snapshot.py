"""What one look at the machine gives, to be written down in whatever format."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.causes.evidence import OomKill, XidError
from trainvitals.record.flows import Flows
from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.cpu import CpuReading
from trainvitals.sources.filesystem import FilesystemReading
from trainvitals.sources.kernel_log import KernelLine
from trainvitals.sources.memory import MemoryReading
from trainvitals.sources.processes import ProcessesReading
from trainvitals.sources.training.reading import RunsReading


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of an accelerator.

    Attributes:
        uuid: The accelerator's.
        pid: The process.
        name: Its name; None where it is not among the processes that we see.
        container: The name of its container; None where it runs in none, or that is not known.
        used_bytes: What it holds.
    """

    uuid: str
    pid: int
    name: str | None
    container: str | None
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the kernel log had that is new.

    Attributes:
        oom_kills: Kills for want of memory, the oldest first.
        xids: Errors of NVIDIA GPUs.
        lines: Other telling lines, masked.
        lost: How many records were overwritten before they were read.
    """

    oom_kills: tuple[OomKill, ...] = ()
    xids: tuple[XidError, ...] = ()
    lines: tuple[KernelLine, ...] = ()
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The machine at one time.

    A reading that is None could not be had; `troubles` says why.

    Attributes:
        time: When, seconds since 1970.
        hostname: The machine's name.
        number: Its place in this recording, from 1.
        seconds: How long the look took.
        skipped: How many beats had no snapshot since the one before, because one took too long.
        unwritten: How many snapshots before this one could not be written.
        memory: Memory and swap.
        cpu: Processors.
        filesystems: Disk space.
        processes: Those that use the most.
        accelerators: GPUs and Gaudi cards.
        holders: Who holds the memory of accelerators, the largest first for each.
        containers: Containers; None also where there are none to be had.
        cpu_percents: How much of one core each running container used since the snapshot before, by
            name; only where that is known.
        new_deaths: The names of the containers whose last death is new since the snapshot before; at
            the first those of all that died.
        oom_kills: By how much the host's count of OOM kills rose since the snapshot before; None
            at the first, and where the kernel does not count them.
        kernel: What is new in the kernel log; None where it cannot be read.
        engine_errors: What is new in the engine's log and tells of trouble, masked; None where it
            cannot be read.
        uptime_seconds: Since the machine was started; it does not jump when the clock is set.
        flows: What disks and interfaces move.
        runs: Training runs.
        troubles: What could not be read, and why.
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
    flows: Flows = Flows()  # noqa: RUF009 - immutable
    runs: RunsReading | None = None
    troubles: tuple[str, ...] = ()
