"""The list of collectors; each collector reads one part of the machine.

To add a collector, write a module in this folder and add an entry to `COLLECTORS`, from which the
flags `--collector.NAME` and `--no-collector.NAME` are generated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
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
from trainvitals.sources.accelerators.holders import Holders, Places
from trainvitals.sources.accelerators.idleness import IdleDevice, IdleWatch, Limits
from trainvitals.sources.accelerators.reading import AcceleratorsReading, Idleness
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
        training: The directories and files in which training runs are found.
        containers: The container engine and the settings for watching containers.
        complain: A function that returns why the web configuration file's content is not in force;
            None if the content is in force.
        reloads: A function that returns how many times a reload of all files has been requested.
        thresholds: The path of the thresholds file, which defines when a held accelerator is idle;
            None if the file in force is used.
        latest: The functions that return the latest readings of the training collector and the
            container collector, by collector name. The builders add these functions.
    """

    roots: Roots
    accelerators: AcceleratorSource
    training: TrainingOptions = TrainingOptions()  # noqa: RUF009 - immutable
    containers: ContainerOptions = ContainerOptions()  # noqa: RUF009 - immutable
    complain: Callable[[], str | None] = lambda: None
    reloads: Callable[[], int] = lambda: 0
    thresholds: Path | None = None
    latest: dict[str, Callable[[], Any]] = field(default_factory=dict)


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
    source = TrainingSource(
        parts.training, roots=parts.roots, machine=machine, reloads=parts.reloads
    )
    collector = TrainingCollector(source)
    parts.latest["training"] = lambda: collector.latest
    return collector


def _build_container(parts: Parts) -> ContainerCollector:
    source = ContainerSource(
        parts.containers, judge=_judge, roots=parts.roots, accelerators=parts.accelerators
    )
    parts.latest["container"] = source.read
    return ContainerCollector(source)


def _judge(evidence: Evidence) -> Judgement:
    """Return the cause of a container's exit.

    To save memory, the rules are imported only at the first call.
    """
    from trainvitals.verdicts.causes.judge import judge  # noqa: PLC0415

    return judge(evidence)


def _build_accelerator(parts: Parts) -> AcceleratorCollector:
    """Return the accelerator collector, which uses the latest readings of runs and containers."""
    holders = Holders(parts.roots)
    watch = IdleWatch(_judge_idle, _ReadLimits(parts.thresholds), roots=parts.roots)

    def take(name: str) -> Any:  # noqa: ANN401 - the reading of one of two collectors
        return parts.latest[name]() if name in parts.latest else None

    def examine(reading: AcceleratorsReading) -> AcceleratorsReading:
        return watch.judge(holders.look_up(reading, time.monotonic()), take("training"))

    return AcceleratorCollector(
        parts.accelerators,
        examine=examine,
        find_places=lambda: Places(take("training"), take("container")),
    )


def _judge_idle(device: IdleDevice) -> Idleness:
    """Return why an accelerator is idle; the rules are imported at the first call."""
    from trainvitals.verdicts.idle import judge_idle  # noqa: PLC0415

    return judge_idle(device)


class _ReadLimits:
    """Reads the limits that define an idle accelerator from the thresholds in force.

    To save memory, the required modules are imported only when an accelerator is held.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: Any = None

    def __call__(self) -> Limits:
        """Return the limits that define an idle accelerator."""
        from trainvitals.verdicts.idle import read_limits  # noqa: PLC0415
        from trainvitals.verdicts.thresholds import ThresholdsFile  # noqa: PLC0415

        self._file = self._file or ThresholdsFile(self._path)
        return read_limits(self._file.latest()[0])


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
    Entry("accelerator", "GPUs and HPUs", _build_accelerator),
)
