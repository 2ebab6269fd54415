"""The real exporter over recorded machines: its collectors, its runner, its pages, its server.

A collector takes what a machine tells of the present moment in place of what it would read itself;
everything from there on is what `trainvitals serve` does.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from demo.machine import Machine
from trainvitals import __version__
from trainvitals.collectors import COLLECTORS, Parts
from trainvitals.collectors.accelerator import AcceleratorCollector
from trainvitals.collectors.collector import Collector
from trainvitals.collectors.container import ContainerCollector
from trainvitals.collectors.training import TrainingCollector
from trainvitals.endpoints import Endpoints
from trainvitals.families import Block
from trainvitals.listen import parse_address
from trainvitals.overview.observer import Observer
from trainvitals.scrape import Runner
from trainvitals.server import Server
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.source import ContainerSource
from trainvitals.sources.files import Roots
from trainvitals.sources.training.source import TrainingSource
from trainvitals.web.live.firing import FiringAlerts, read_prometheus_url

_NOWHERE = Roots(*map(Path, ("/nonexistent/proc", "/nonexistent/sys", "/nonexistent")))

_log = logging.getLogger("trainvitals")  # the one that is set up


class _NoSource:
    """Stands where a source would read this machine; nobody reads it."""

    kinds: tuple[Kind, ...] = ("gpu", "hpu")


class Replayed:
    """A collector that names what a recorded machine tells.

    Args:
        collector: The real one.
        read: Gives the reading of a moment.
        clock: The time of day, Unix seconds.

    Attributes:
        name: That of the real one.
    """

    def __init__(
        self, collector: Collector[Any], read: Callable[[float], object], clock: Callable[[], float]
    ) -> None:
        self.name = collector.name
        self._collector, self._read, self._clock = collector, read, clock

    def read(self, deadline: float) -> object:  # noqa: ARG002 - nothing here can hang
        """Take what the machine tells of now."""
        return self._read(self._clock())

    def express(self, reading: object) -> tuple[Block, ...]:
        """Name it as the real collector does."""
        return self._collector.express(reading)

    def complaint(self, reading: object) -> str | None:
        """Say what the real collector says."""
        return self._collector.complaint(reading)

    def omitted(self, reading: object) -> int:
        """Count what the real collector counts."""
        return self._collector.omitted(reading)

    def close(self) -> None:
        """Hold nothing open."""


def build_collectors(
    machine: Machine, clock: Callable[[], float] = time.time
) -> tuple[Replayed, ...]:
    """Give every collector of the exporter for a recorded machine."""
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


class ReplayedMachine:
    """A recorded machine behind an address of its own, as `trainvitals serve` would show it.

    Args:
        machine: What it tells.
        address: Where it listens, `HOST:PORT`.

    Attributes:
        runner: Asks the collectors.
        expected: How many accelerators it should have.
        server: Answers.
    """

    def __init__(self, machine: Machine, address: str) -> None:
        self.runner = Runner(build_collectors(machine))
        self.expected: Mapping[Kind, int] = machine.expected
        # Its processes are none of this machine's.
        observer = Observer(__version__, roots=_NOWHERE, name_host=lambda: machine.name)
        endpoints = Endpoints(self, observe=lambda: observer, alerts=_find_alerts(machine.name))
        self.server = Server([parse_address(address)], endpoints.answer)

    def close(self) -> None:
        """Let go of everything."""
        self.server.close()
        self.runner.close()


def _find_alerts(name: str) -> FiringAlerts | None:
    url = os.environ.get("TRAINVITALS_PROMETHEUS_URL")
    return FiringAlerts(read_prometheus_url(url), name) if url else None


def serve(machines: Sequence[tuple[Machine, str]]) -> None:
    """Serve machines, each at its address, until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: An address cannot be listened on.
    """
    with ExitStack() as undo:
        replayed = [ReplayedMachine(machine, address) for machine, address in machines]
        for each, (machine, address) in zip(replayed, machines, strict=True):
            undo.callback(each.close)
            each.server.bind()
            _log.info("%s listens on %s", machine.name, address)
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        threads = [threading.Thread(target=each.server.run) for each in replayed]
        for thread in threads:
            thread.start()
        ended.wait()
        for each, thread in zip(replayed, threads, strict=True):
            each.server.stop()
            thread.join()
