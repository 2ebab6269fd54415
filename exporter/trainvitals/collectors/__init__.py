"""The collectors: one part of the machine each.

To add one, write its file here and add a line to `COLLECTORS`; the flags `--collector.NAME` and
`--no-collector.NAME` follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainvitals.collectors.accelerator import AcceleratorCollector
from trainvitals.collectors.collector import Collector
from trainvitals.collectors.container import ContainerCollector
from trainvitals.collectors.cpu import CpuCollector
from trainvitals.collectors.disk import DiskCollector
from trainvitals.collectors.filesystem import FilesystemCollector
from trainvitals.collectors.kernel import KernelCollector
from trainvitals.collectors.kernel_log import KernelLogCollector
from trainvitals.collectors.memory import MemoryCollector
from trainvitals.collectors.network import NetworkCollector
from trainvitals.collectors.pressure import PressureCollector
from trainvitals.collectors.process import ProcessCollector
from trainvitals.collectors.training import TrainingCollector
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.source import ContainerOptions, ContainerSource
from trainvitals.sources.files import Roots
from trainvitals.sources.training.source import TrainingOptions, TrainingSource
from trainvitals.sources.training.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Parts:
    """What collectors are made of.

    Attributes:
        roots: Where the host's file systems are found.
        accelerators: Reads the accelerators; it also knows the processes that do so.
        training: Where training runs are looked for.
        containers: Which containers are watched, and how.
    """

    roots: Roots
    accelerators: AcceleratorSource
    training: TrainingOptions = TrainingOptions()  # noqa: RUF009 - immutable
    containers: ContainerOptions = ContainerOptions()  # noqa: RUF009 - immutable


@dataclass(frozen=True, slots=True)
class Entry:
    """One collector of the list.

    Attributes:
        name: The value of the label `collector` and the stem of its flags.
        subject: What it collects, in a few words.
        build: Makes it.
    """

    name: str
    subject: str
    build: Callable[[Parts], Collector[Any]]


def _build_training(parts: Parts) -> TrainingCollector:
    surroundings = Surroundings(parts.accelerators, roots=parts.roots)
    return TrainingCollector(
        TrainingSource(parts.training, roots=parts.roots, surroundings=surroundings)
    )


def _build_container(parts: Parts) -> ContainerCollector:
    return ContainerCollector(
        ContainerSource(parts.containers, roots=parts.roots, accelerators=parts.accelerators)
    )


COLLECTORS: tuple[Entry, ...] = (
    Entry("cpu", "CPU time, cores, load", lambda parts: CpuCollector(roots=parts.roots)),
    Entry("memory", "memory, swap, OOM kills", lambda parts: MemoryCollector(roots=parts.roots)),
    Entry(
        "filesystem", "space of file systems", lambda parts: FilesystemCollector(roots=parts.roots)
    ),
    Entry("disk", "disk traffic", lambda parts: DiskCollector(roots=parts.roots)),
    Entry("network", "network traffic", lambda parts: NetworkCollector(roots=parts.roots)),
    Entry("pressure", "pressure stalls", lambda parts: PressureCollector(roots=parts.roots)),
    Entry("kernel", "boot time and clock", lambda parts: KernelCollector(roots=parts.roots)),
    Entry(
        "process",
        "the exporter itself",
        lambda parts: ProcessCollector(children=lambda: parts.accelerators.pids),
    ),
    Entry(
        "kernel_log",
        "OOM kills and GPU errors by the kernel's log",
        lambda parts: KernelLogCollector(roots=parts.roots),
    ),
    Entry("container", "containers and what they died of", _build_container),
    Entry("training", "training runs and their ranks", _build_training),
    # The slowest comes last, so that the quick ones never wait for it.
    Entry("accelerator", "GPUs and HPUs", lambda parts: AcceleratorCollector(parts.accelerators)),
)
