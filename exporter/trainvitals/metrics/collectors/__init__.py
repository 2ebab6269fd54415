"""The collectors, each for one part of the machine.

To add a collector, write its module in this folder and add a line to `COLLECTORS`, from which the
flags `--collector.NAME` and `--no-collector.NAME` are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainvitals.metrics.collectors.accelerator import AcceleratorCollector
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.collectors.container import ContainerCollector
from trainvitals.metrics.collectors.cpu import CpuCollector
from trainvitals.metrics.collectors.disk import DiskCollector
from trainvitals.metrics.collectors.filesystem import FilesystemCollector
from trainvitals.metrics.collectors.kernel import KernelCollector
from trainvitals.metrics.collectors.kernel_log import KernelLogCollector
from trainvitals.metrics.collectors.memory import MemoryCollector
from trainvitals.metrics.collectors.network import NetworkCollector
from trainvitals.metrics.collectors.pressure import PressureCollector
from trainvitals.metrics.collectors.process import ProcessCollector
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.source import ContainerOptions, ContainerSource
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource

if TYPE_CHECKING:
    from trainvitals.sources.containers.evidence import Evidence
    from trainvitals.sources.containers.judgement import Judgement


@dataclass(frozen=True, slots=True)
class Parts:
    """The sources and options that collectors are built from.

    Attributes:
        roots: The root directories.
        accelerators: The reader of accelerators, with the ids of its child processes.
        training: The directories and files of training runs.
        containers: The engine, and how containers are watched.
        complain: Returns which of the exporter's own files is not in force; None if all are.
        reloads: Returns how often all files were to be read again.
    """

    roots: Roots
    accelerators: AcceleratorSource
    training: TrainingOptions = TrainingOptions()  # noqa: RUF009 - immutable
    containers: ContainerOptions = ContainerOptions()  # noqa: RUF009 - immutable
    complain: Callable[[], str | None] = lambda: None
    reloads: Callable[[], int] = lambda: 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One collector of the list.

    Attributes:
        name: The label `collector` and the stem of its flags.
        subject: The things that it collects, for the help.
        build: Creates it.
    """

    name: str
    subject: str
    build: Callable[[Parts], Collector[Any]]


def _build_training(parts: Parts) -> TrainingCollector:
    machine = MachineState(parts.accelerators, roots=parts.roots)
    return TrainingCollector(
        TrainingSource(parts.training, roots=parts.roots, machine=machine, reloads=parts.reloads)
    )


def _build_container(parts: Parts) -> ContainerCollector:
    return ContainerCollector(
        ContainerSource(
            parts.containers, judge=_judge, roots=parts.roots, accelerators=parts.accelerators
        )
    )


def _judge(evidence: Evidence) -> Judgement:
    """Return the cause of a death; the rules cost memory, so they are imported at the first one."""
    from trainvitals.verdicts.causes.judge import judge  # noqa: PLC0415

    return judge(evidence)


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
        lambda parts: ProcessCollector(
            children=lambda: parts.accelerators.pids, complain=parts.complain
        ),
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
