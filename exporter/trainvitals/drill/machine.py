"""A simulated machine: its series go through the exporter's own runner, writer and server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby

from trainvitals.drill.series import Series
from trainvitals.endpoints import Endpoints
from trainvitals.errors import SourceError
from trainvitals.families import Block, Family
from trainvitals.listen import parse_address
from trainvitals.scrape import Runner
from trainvitals.server import Server
from trainvitals.sources.accelerators.reading import Kind

Reading = tuple[tuple[Series, float], ...]


class SimulatedCollector:
    """Tells the series of the present phase.

    Args:
        speed: How many times faster than usual time passes.
        now: The Unix time.
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
        """Begin a phase with these series; counters go on from where they were.

        Args:
            series: What the machine tells.
            is_failing: Have every reading fail, as a driver that does not answer.
        """
        with self._lock:
            self._is_failing = is_failing
            self._count()
            self._began = self._counted
            self._series = series

    def read(self, deadline: float) -> Reading:  # noqa: ARG002 - nothing here can hang
        """Give each series with its value now.

        Raises:
            SourceError: The phase is one of failing.
        """
        with self._lock:
            if self._is_failing:
                raise SourceError("simulated: this collector fails")
            self._count()
            return tuple((each, self._value(each)) for each in self._series)

    def _count(self) -> None:
        now = self._now()
        for each in self._series:
            if each.course == "rate":
                gained = each.amount * (now - self._counted)
                self._totals[each.key] = self._totals.get(each.key, 0.0) + gained
        self._counted = now

    def _value(self, series: Series) -> float:
        match series.course:
            case "constant":
                return series.amount
            case "rate":
                return series.start + self._totals[series.key]
            case "instant":
                return self._began - series.amount / self._speed
            case "recent":
                return self._counted - series.amount / self._speed
            case "duration":
                return series.amount / self._speed

    def express(self, reading: Reading) -> tuple[Block, ...]:
        """Name what was read."""
        ordered = sorted(reading, key=lambda pair: pair[0].name)
        shape = tuple((series.name, series.labels) for series, _ in ordered)
        values = [value for _, value in ordered]
        return (Block((self.name, shape), partial(_describe, shape), values),) if values else ()

    def complaint(self, reading: Reading) -> str | None:  # noqa: ARG002 - whole by design
        """Give None."""
        return None

    def omitted(self, reading: Reading) -> int:  # noqa: ARG002 - bounded by design
        """Give 0."""
        return 0

    def close(self) -> None:
        """Hold nothing open."""


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
    """An exporter on a port of its own that tells about a machine which does not exist.

    Args:
        speed: How many times faster than usual time passes.
        port: Where it listens on 127.0.0.1.

    Attributes:
        collector: What it tells.
        runner: Asks the collector.
        expected: No accelerators.
        address: Where it listens.
    """

    def __init__(self, *, speed: float, port: int) -> None:
        self.collector = SimulatedCollector(speed=speed)
        self.runner = Runner([self.collector])
        self.expected: Mapping[Kind, int] = {}
        self.address = parse_address(f"127.0.0.1:{port}")
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def listen(self) -> None:
        """Answer from now on.

        Raises:
            ConfigurationError: The port is taken.
        """
        self._server = Server([self.address], Endpoints(self).answer)
        self._server.bind()
        self._thread = threading.Thread(target=self._server.run, name="drill", daemon=True)
        self._thread.start()

    def fall_silent(self) -> None:
        """Answer no more, as a machine that has died."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
            self._server = self._thread = None

    def close(self) -> None:
        """Stop for good."""
        self.fall_silent()
        self.runner.close()
