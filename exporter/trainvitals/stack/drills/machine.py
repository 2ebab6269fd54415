"""A simulated machine, served by the exporter's own runner, exposition and server."""

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
    """A collector that returns the series of the current phase.

    Args:
        speed: The factor by which time passes faster.
        now: Returns Unix seconds.
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
        """Begin a phase with these series; counters continue from their values.

        Args:
            series: The series.
            is_failing: Whether every reading fails, as with a driver that does not respond.
        """
        with self._lock:
            self._is_failing = is_failing
            self._count()
            self._began = self._counted
            self._series = series

    def read(self, deadline: float) -> Reading:  # noqa: ARG002 - nothing here can hang
        """Return each series with its current value.

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
        """Return the readings as metrics."""
        ordered = sorted(reading, key=lambda pair: pair[0].name)
        shape = tuple((series.name, series.labels) for series, _ in ordered)
        values = [value for _, value in ordered]
        return (Block((self.name, shape), partial(_describe, shape), values),) if values else ()

    def complaint(self, reading: Reading) -> str | None:  # noqa: ARG002 - whole by design
        """Return None."""
        return None

    def omitted(self, reading: Reading) -> int:  # noqa: ARG002 - bounded by design
        """Return 0."""
        return 0

    def close(self) -> None:
        """Do nothing: there are no resources."""


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
    """A simulated machine behind the exporter's own runner, pages and server.

    Args:
        collectors: Its collectors.
        address: The address to listen on, `HOST:PORT`.
        expected: The expected number of accelerators of each kind.
        observe: Returns the observer that keeps the history for the pages; None for the default.
        alerts: The source of firing alerts; None if there is none.

    Attributes:
        runner: The runner of the collectors.
        expected: The expected number of accelerators of each kind.
        address: The address, parsed.
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
        """Start serving.

        Raises:
            ConfigurationError: The port is in use.
        """
        self._server = Server([self.address], self._endpoints.answer)
        self._server.bind()
        self._thread = threading.Thread(target=self._server.run, name="simulation", daemon=True)
        self._thread.start()

    def fall_silent(self) -> None:
        """Stop serving, as a machine that is down."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
            self._server = self._thread = None

    def close(self) -> None:
        """Stop serving and release everything."""
        self.fall_silent()
        self.runner.close()
