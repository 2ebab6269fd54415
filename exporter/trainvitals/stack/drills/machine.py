"""A simulated machine, served by the exporter's runner, exposition and HTTP server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from trainvitals.errors import SourceError
from trainvitals.http.endpoints import Endpoints
from trainvitals.http.listen import parse_address
from trainvitals.http.server import Server
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.families import Block, Family
from trainvitals.metrics.runner import Runner
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.alerts import FiringAlerts
from trainvitals.stack.drills.fault import Series
from trainvitals.views.machine.observer import Observer

Reading = tuple[tuple[Series, float], ...]


class SimulatedCollector:
    """A collector that returns the series of a drill's current phase.

    Args:
        speed: The factor by which the drill is faster than real time.
        now: Returns the current time in Unix seconds.
    """

    name = "simulation"

    def __init__(self, *, speed: float, now: Callable[[], float] = time.time) -> None:
        self._speed = speed
        self._now = now
        self._lock = threading.Lock()
        self._totals: dict[str, float] = {}
        self._series: Sequence[Series] = ()
        self._is_failing = False
        self._began = self._counted = now()

    def enter(self, series: Sequence[Series], *, is_failing: bool = False) -> None:
        """Begin a phase with new series; counters and slopes continue from their current values.

        Args:
            series: The machine's series during the phase.
            is_failing: Whether every reading in the phase fails, as if a driver did not respond.
        """
        with self._lock:
            self._is_failing = is_failing
            self._count()
            self._began = self._counted
            self._series = series

    def read(self, deadline: float) -> Reading:  # noqa: ARG002 - nothing here can block
        """Return the series of the phase with their current values.

        Raises:
            SourceError: The collector fails in this phase.
        """
        with self._lock:
            if self._is_failing:
                raise SourceError("simulated: this collector fails")
            self._count()
            return tuple((each, self._value(each)) for each in self._series)

    def _count(self) -> None:
        now = self._now()
        for each in self._series:
            if each.course in ("rate", "slope"):
                pace = self._speed if each.course == "slope" else 1.0
                gained = each.amount * pace * (now - self._counted)
                self._totals[each.key] = self._totals.get(each.key, 0.0) + gained
        self._counted = now

    def _value(self, series: Series) -> float:
        match series.course:
            case "constant":
                return series.amount
            case "rate" | "slope":
                return series.start + self._totals[series.key]
            case "instant":
                return self._began - series.amount / self._speed
            case "recent":
                return self._counted - series.amount / self._speed
            case "duration":
                return series.amount / self._speed

    def express(self, reading: Reading) -> tuple[Block, ...]:
        """Return the values of the series as metric families."""
        ordered = sorted(reading, key=lambda pair: pair[0].name)
        shape = tuple((series.name, series.labels) for series, _ in ordered)
        values = [value for _, value in ordered]
        return (Block((self.name, shape), partial(_describe, shape), values),) if values else ()

    def complaint(self, reading: Reading) -> str | None:  # noqa: ARG002 - never partial
        """Return None, because a reading is never partial."""
        return None

    def omitted(self, reading: Reading) -> int:  # noqa: ARG002 - never limited
        """Return 0, because no value is ever omitted."""
        return 0

    def close(self) -> None:
        """Do nothing, because there are no resources to release."""


def _describe(shape: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]) -> tuple[Family, ...]:
    return tuple(
        Family(
            name,
            "counter" if name.endswith("_total") else "gauge",
            "Simulated. Source: trainvitals drill.",
            tuple(("", labels) for _, labels in samples),
        )
        for name, samples in groupby(shape, key=lambda pair: pair[0])
    )


class SimulatedMachine:
    """A simulated machine, served by the exporter's runner, endpoints and HTTP server.

    Args:
        collectors: The machine's collectors.
        address: The address on which the machine listens, `HOST:PORT`.
        expected: The expected number of accelerators of each kind.
        observe: Returns the observer that stores the history for the web pages; None for the
            default observer.
        alerts: The source of firing alerts; None if the machine has no alerts.

    Attributes:
        runner: The runner of the machine's collectors.
        expected: The expected number of accelerators of each kind.
        address: The parsed address on which the machine listens.
    """

    def __init__(
        self,
        collectors: Sequence[Collector[Any]],
        address: str,
        *,
        expected: Mapping[Kind, int] | None = None,
        observe: Callable[[], Observer] | None = None,
        alerts: FiringAlerts | None = None,
    ) -> None:
        self.runner = Runner(collectors)
        self.expected: Mapping[Kind, int] = expected or {}
        self.address = parse_address(address)
        self._endpoints = Endpoints(self, observe=observe, alerts=alerts)
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def listen(self) -> None:
        """Start to serve the simulated machine's metrics and pages over HTTP.

        Raises:
            ConfigurationError: The port is in use.
        """
        self._server = Server([self.address], self._endpoints.answer)
        self._server.bind()
        self._thread = threading.Thread(target=self._server.run, name="simulation", daemon=True)
        self._thread.start()

    def fall_silent(self) -> None:
        """Stop serving HTTP, as if the machine were down."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
            self._server = self._thread = None

    def close(self) -> None:
        """Stop serving HTTP and release all resources."""
        self.fall_silent()
        self.runner.close()
