"""Draws the picture of a machine from the readings of its collectors, and remembers what was.

It measures nothing itself: it is told of every scrape that was made for somebody, and asked for a
picture when somebody looks. What it keeps is bounded, whatever comes and goes on the machine.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from trainvitals.overview.accelerators import Accelerators, Work
from trainvitals.overview.containers import Containers
from trainvitals.overview.holders import Acquaintances, introduce
from trainvitals.overview.host import HostPast, take
from trainvitals.overview.picture import Alert, Collector, Picture, Run
from trainvitals.overview.runs import Runs
from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.files import Roots, read_small
from trainvitals.sources.training.reading import RunsReading


class Told(Protocol):
    """How one collector fared, as `trainvitals.reports.Report` tells it."""

    @property
    def collector(self) -> str:
        """Its name."""
        ...

    @property
    def success(self) -> bool:
        """Its reading is here and whole."""
        ...

    @property
    def seconds(self) -> float | None:
        """How long its latest reading took."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it did not succeed; None when it did."""
        ...

    @property
    def last_success(self) -> float | None:
        """When it last brought a whole reading, Unix seconds."""
        ...


class Seen(Protocol):
    """What one scrape found, as `trainvitals.scrape.Snapshot` tells it."""

    @property
    def readings(self) -> Mapping[str, object]:
        """What the collectors read, by name; those that failed are absent."""
        ...

    @property
    def reports(self) -> Sequence[Told]:
        """How each asked collector fared."""
        ...


class Observer:
    """Draws pictures of one machine.

    It is used by one thread at a time.

    Args:
        version: The version of the exporter that reads it.
        roots: Where the processes that hold accelerators are found.
        name_host: Gives the machine's name; what the system says when None, or in a container the
            host's `/etc/hostname`.
    """

    def __init__(
        self,
        version: str,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        name_host: Callable[[], str] | None = None,
    ) -> None:
        self._version = version
        self._name_host = name_host or partial(name_machine, roots)
        self._accelerators = Accelerators()
        self._runs = Runs()
        self._host = HostPast()
        self._containers = Containers()
        self._acquaintances = Acquaintances(roots)
        self._noted: Seen | None = None

    def note(self, seen: Seen, time: float) -> None:
        """Remember what a scrape found that was made for somebody else.

        Args:
            seen: What it found; the same one twice counts once.
            time: When, Unix seconds.
        """
        if seen is self._noted:
            return
        self._noted = seen
        readings = seen.readings
        asked = [report.collector for report in seen.reports]
        if "accelerator" in asked:
            self._accelerators.note(readings.get("accelerator"), time)
        if "training" in asked:
            self._runs.note(readings.get("training"), time)
        self._host.note(readings, time)

    def picture(
        self,
        seen: Seen,
        time: float,
        *,
        alerts: Iterable[Alert] | None = None,
        alerts_trouble: str = "",
    ) -> Picture:
        """Draw the machine.

        Args:
            seen: What was found just now.
            time: When, Unix seconds.
            alerts: What fires, the worst first; None where nobody knows.
            alerts_trouble: Why nobody does; empty where nobody named a Prometheus.
        """
        self.note(seen, time)
        readings = seen.readings
        devices = take(readings, "accelerator", AcceleratorsReading)
        runs = take(readings, "training", RunsReading)
        containers = take(readings, "container", ContainersReading)
        describe = introduce(self._acquaintances, runs, containers, time)
        work = self._accelerators.judge(devices) if devices else {}
        return Picture(
            time=time,
            hostname=self._name_host(),
            version=self._version,
            accelerators=self._accelerators.draw(devices, describe) if devices else (),
            accelerators_expected=devices.expected if devices else (),
            runs=self._draw_runs(runs, devices, work, time),
            containers=self._containers.draw(containers, time) if containers else None,
            host=self._host.draw(readings),
            alerts=None if alerts is None else tuple(alerts),
            alerts_trouble=alerts_trouble,
            collectors=tuple(_draw_collector(report) for report in seen.reports),
        )

    def _draw_runs(
        self,
        runs: RunsReading | None,
        devices: AcceleratorsReading | None,
        work: Mapping[str, Work],
        time: float,
    ) -> tuple[Run, ...]:
        if runs is None:
            return ()
        identities = [each.identity for each in (devices.devices if devices else ())]
        names = {each.uuid: f"{each.kind}{each.index}" for each in identities}
        return self._runs.draw(runs, work, names, time)


def name_machine(roots: Roots = Roots()) -> str:  # noqa: B008 - immutable
    """Name the machine: as the system does, or in a container as the host's `/etc/hostname` does.

    Args:
        roots: Where the host's root directory is.
    """
    is_mounted = roots.rootfs != Path("/")
    told = read_small(roots.rootfs / "etc/hostname") if is_mounted else None
    return told or socket.gethostname()


def _draw_collector(report: Told) -> Collector:
    return Collector(
        name=report.collector,
        success=report.success,
        reason=report.reason or "",
        duration_seconds=report.seconds,
        last_success=report.last_success,
    )
