"""The real exporter, with its collectors, runner, pages and server, for simulated machines.

A collector takes the readings of a simulated machine instead of reading this machine; all further
processing is that of `trainvitals serve`.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from fleet.machine import Machine
from trainvitals import __version__
from trainvitals.metrics.collectors import COLLECTORS, Parts
from trainvitals.metrics.collectors.accelerator import AcceleratorCollector
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.collectors.container import ContainerCollector
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.families import Block
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.alerts import FiringAlerts, follow_alerts
from trainvitals.sources.containers.source import ContainerSource
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.source import TrainingSource
from trainvitals.stack.drills.machine import SimulatedMachine
from trainvitals.verdicts.thresholds import ThresholdsFile
from trainvitals.views.machine.observer import Observer

_NOWHERE = Roots(*map(Path, ("/nonexistent/proc", "/nonexistent/sys", "/nonexistent")))

_log = logging.getLogger("trainvitals")  # the configured logger


class _NoSource:
    """A placeholder for a data source of this machine, which is never read."""

    kinds: tuple[Kind, ...] = ("gpu", "hpu")


class Replayed:
    """A collector that exports the readings of a simulated machine.

    Args:
        collector: The real collector.
        read: A function that returns the reading at a time.
        clock: A clock that returns Unix time in seconds.

    Attributes:
        name: The name of the real collector.
    """

    def __init__(
        self, collector: Collector[Any], read: Callable[[float], object], clock: Callable[[], float]
    ) -> None:
        self.name = collector.name
        self._collector, self._read, self._clock = collector, read, clock

    def read(self, deadline: float) -> object:  # noqa: ARG002 - nothing here can hang
        """Return the current reading."""
        return self._read(self._clock())

    def express(self, reading: object) -> tuple[Block, ...]:
        """Return the metrics of the real collector."""
        return self._collector.express(reading)

    def complaint(self, reading: object) -> str | None:
        """Return the complaint of the real collector."""
        return self._collector.complaint(reading)

    def omitted(self, reading: object) -> int:
        """Return the real collector's count of omitted objects."""
        return self._collector.omitted(reading)

    def close(self) -> None:
        """Do nothing: no resource is open."""


def build_collectors(
    machine: Machine, clock: Callable[[], float] = time.time
) -> tuple[Replayed, ...]:
    """Return all collectors of the exporter for a simulated machine."""
    parts = Parts(_NOWHERE, AcceleratorSource(vendors=(), roots=_NOWHERE))
    none = _NoSource()
    replaced: Mapping[str, Collector[Any]] = {
        "accelerator": AcceleratorCollector(cast("AcceleratorSource", none)),
        "container": ContainerCollector(cast("ContainerSource", none)),
        "training": TrainingCollector(cast("TrainingSource", none)),
    }
    return tuple(
        Replayed(replaced.get(entry.name) or entry.build(parts), machine.readers[entry.name], clock)
        for entry in COLLECTORS
    )


def replay(
    machine: Machine,
    address: str,
    *,
    observer: Observer | None = None,
    alerts: FiringAlerts | None = None,
) -> SimulatedMachine:
    """Return a simulated machine for an address, with the pages of `trainvitals serve`.

    Args:
        machine: The machine.
        address: The address on which the machine's exporter listens, `HOST:PORT`.
        observer: The observer that keeps past values for the pages; None for an observer without
            past values.
        alerts: The source of the machine's firing alerts; None if not known.
    """
    seen = observer or observe(machine)
    return SimulatedMachine(
        build_collectors(machine),
        address,
        expected=machine.expected,
        observe=lambda: seen,
        alerts=alerts,
    )


def observe(machine: Machine, thresholds: Path | None = None) -> Observer:
    """Return an observer of a simulated machine, whose processes do not exist on this machine."""
    limits = ThresholdsFile(thresholds)
    return Observer(__version__, roots=_NOWHERE, name_host=lambda: machine.name, thresholds=limits)


def serve(
    machines: Sequence[tuple[Machine, str]],
    *,
    prometheus: str | None = None,
    thresholds: Path | None = None,
) -> None:
    """Serve each machine at its address until SIGTERM or SIGINT.

    Args:
        machines: The machines with their addresses.
        prometheus: The address of the Prometheus server that evaluates the machines' alerts.
        thresholds: The path of Prometheus' `thresholds.yml`; None for the shipped file.

    Raises:
        ConfigurationError: The server cannot listen on an address.
    """
    with ExitStack() as undo:
        for machine, address in machines:
            alerts = (
                follow_alerts(prometheus, machine.name, flag="--web.prometheus")
                if prometheus
                else None
            )
            observer = observe(machine, thresholds)
            served = replay(machine, address, observer=observer, alerts=alerts)
            undo.callback(served.close)
            served.listen()
            _log.info("%s listens on %s", machine.name, address)
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        ended.wait()
