"""The list of collectors; each collector reads one part of the machine.

To add a collector, write a module in this folder and add an entry to `COLLECTORS`, from which the
flags `--collector.NAME` and `--no-collector.NAME` are generated.
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
    """The sources and options from which collectors are built.

    Attributes:
        roots: The root directories of the file systems to read.
        accelerators: The accelerator reader, which also returns the IDs of its child processes.
        training: The directories and files for training runs.
        containers: The container engine and the settings for watching containers.
        complain: A function that returns a line about an exporter file that is not in force; None
            if all files are in force.
        reloads: A function that returns how many times a reload of all files has been requested.
    """

    roots: Roots
    accelerators: AcceleratorSource
    training: TrainingOptions = TrainingOptions()  # noqa: RUF009 - immutable
    containers: ContainerOptions = ContainerOptions()  # noqa: RUF009 - immutable
    complain: Callable[[], str | None] = lambda: None
    reloads: Callable[[], int] = lambda: 0


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry in the list of collectors.

    Attributes:
        name: The name of the collector, which is the value of the label `collector` and part of the
            collector's flags.
        subject: The data that is collected, for the help text of the flags.
        build: A function that creates the collector.
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
    """Return the cause of a container's exit.

    The rules, which need memory, are imported at the first use.
    """
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
    # The slowest collector is last, so that the fast collectors never wait for it.
    Entry("accelerator", "GPUs and HPUs", lambda parts: AcceleratorCollector(parts.accelerators)),
)
