"""The machine state, derived from collector readings and their recent history.

The observer does not read collectors: it receives the result of every scrape, and returns the
machine state on request. The observer's memory use is bounded, even if many devices, runs and
containers are added and removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from trainvitals.sources.accelerators.holders import Places
from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.alerts import Alert
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.files import Roots, name_machine
from trainvitals.sources.runs.reading import RunsReading, choose_runs
from trainvitals.verdicts.collectors import CollectorReport
from trainvitals.verdicts.machine import Alerts, Judgement, Past, judge_machine, take
from trainvitals.verdicts.thresholds import ThresholdsFile
from trainvitals.verdicts.trouble import SEVERITIES, Trouble, Unknown
from trainvitals.views.machine.accelerators import Accelerators
from trainvitals.views.machine.containers import Containers
from trainvitals.views.machine.faulty import explain_faulty
from trainvitals.views.machine.host import HostPast
from trainvitals.views.machine.picture import Collector, Picture
from trainvitals.views.machine.runs import Runs, add_runs
from trainvitals.workers import attempt_without_faulty

Drawn = TypeVar("Drawn")


class Report(CollectorReport, Protocol):
    """The outcome of a collector: a `trainvitals.metrics.collector_metrics.Report`."""

    @property
    def seconds(self) -> float | None:
        """The seconds that the collector's latest reading took; None if the time is unknown."""
        ...

    @property
    def last_success(self) -> float | None:
        """The Unix time of the last complete reading; None before the first complete reading."""
        ...


class Scrape(Protocol):
    """The result of a scrape: a `trainvitals.metrics.runner.Snapshot`."""

    @property
    def readings(self) -> Mapping[str, object]:
        """The readings by collector name; collectors that failed are absent."""
        ...

    @property
    def reports(self) -> Sequence[Report]:
        """The outcome of each collector that was read."""
        ...


class Observer:
    """An observer of one machine that derives the machine state from scrapes.

    Only one thread at a time may use an observer.

    Args:
        version: The version of the exporter that collects the machine's data.
        roots: The root directories of the file systems that contain the host's name.
        name_host: A function that returns the machine's name; if None, the name is read from the
            system, or in a container from the host's `/etc/hostname`.
        thresholds: The alert thresholds; None if the thresholds in the file in force are used.
    """

    def __init__(
        self,
        version: str,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        name_host: Callable[[], str] | None = None,
        thresholds: ThresholdsFile | None = None,
    ) -> None:
        self._version = version
        self._name_host = name_host or partial(name_machine, roots)
        self._accelerators = Accelerators()
        self._runs = Runs()
        self._host = HostPast()
        self._containers = Containers()
        self._thresholds = thresholds or ThresholdsFile()
        self._noted: Scrape | None = None

    def note(self, seen: Scrape, time: float) -> None:
        """Add the result of a scrape to the history.

        Args:
            seen: The result of the scrape. If a result is passed a second time, it is ignored.
            time: The time of the scrape, in Unix seconds.
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
        seen: Scrape,
        time: float,
        *,
        alerts: Iterable[Alert] | None = None,
        alerts_trouble: str = "",
    ) -> Picture:
        """Return the machine state.

        Args:
            seen: The result of the scrape.
            time: The time of the machine state, in Unix seconds.
            alerts: The firing alerts, the most severe first; None if the alerts are unknown.
            alerts_trouble: The reason why the alerts are unknown; an empty string if no Prometheus
                server is configured.
        """
        self.note(seen, time)
        fired = None if alerts is None else tuple(alerts)
        picture, faulty = self._draw_runs(
            seen, lambda readings: self._draw(seen, readings, time, Alerts(fired, alerts_trouble))
        )
        unknowns = (*picture.unknowns, *explain_faulty(faulty))
        return replace(picture, unknowns=unknowns) if faulty else picture

    def _draw_runs(
        self, seen: Scrape, draw: Callable[[Mapping[str, object]], Drawn]
    ) -> tuple[Drawn, list[tuple[str, Exception]]]:
        """Return the result of `draw` without the runs that make `draw` fail, and these runs."""
        reading = take(seen.readings, "training", RunsReading)

        def draw_some(names: Sequence[str]) -> Drawn:
            if reading is None:
                return draw(seen.readings)
            return draw({**seen.readings, "training": choose_runs(reading, names)})

        names = [run.run for run in reading.runs] if reading is not None else []
        return attempt_without_faulty(draw_some, names)

    def _draw(
        self, seen: Scrape, readings: Mapping[str, object], time: float, alerts: Alerts
    ) -> Picture:
        thresholds, _ = self._thresholds.latest()
        devices = take(readings, "accelerator", AcceleratorsReading)
        runs = take(readings, "training", RunsReading)
        containers = take(readings, "container", ContainersReading)
        past = self._recall(devices, runs, time)
        fired = alerts.firing
        judged = self._judge(seen, readings, past, time, alerts)
        known = devices.devices if devices else ()
        return Picture(
            time=time,
            hostname=self._name_host(),
            version=self._version,
            accelerators=self._accelerators.draw(devices, Places(runs, containers))
            if devices
            else (),
            accelerators_expected=devices.expected if devices else (),
            runs=self._runs.draw(runs, known, past.work, time, thresholds) if runs else (),
            containers=self._containers.draw(containers, time, thresholds) if containers else None,
            host=self._host.draw(readings),
            alerts=None if fired is None else _order_alerts(fired, judged.troubles),
            alerts_trouble=alerts.reason,
            collectors=tuple(_draw_collector(report) for report in seen.reports),
            troubles=judged.troubles,
            unknowns=judged.unknowns,
        )

    def judge(self, seen: Scrape, time: float, alerts: Alerts) -> Judgement:
        """Return the problems and the missing sources, as contained in the machine state.

        Args:
            seen: The result of the scrape.
            time: The time of the judgement, in Unix seconds.
            alerts: The alerts that Prometheus reports.
        """
        self.note(seen, time)

        def judge(readings: Mapping[str, object]) -> Judgement:
            devices = take(readings, "accelerator", AcceleratorsReading)
            runs = take(readings, "training", RunsReading)
            return self._judge(seen, readings, self._recall(devices, runs, time), time, alerts)

        judged, faulty = self._draw_runs(seen, judge)
        return replace(judged, unknowns=(*judged.unknowns, *explain_faulty(faulty)))

    def _judge(
        self,
        seen: Scrape,
        readings: Mapping[str, object],
        past: Past,
        time: float,
        alerts: Alerts,
    ) -> Judgement:
        thresholds, trouble = self._thresholds.latest()
        judged = judge_machine(seen.reports, readings, past, thresholds, time, alerts)
        if not trouble:
            return judged
        return replace(judged, unknowns=(*judged.unknowns, Unknown("exporter", trouble)))

    def _recall(
        self, devices: AcceleratorsReading | None, runs: RunsReading | None, time: float
    ) -> Past:
        work = self._accelerators.measure(devices, time) if devices else {}
        habits = self._runs.measure()
        return Past(
            add_runs(work, runs, habits) if runs else work,
            habits,
            self._host.recent_kills,
            self._host.measure_memory_stalls(),
            self._host.measure_io_wait(),
            self._host.measure_io_stalls(),
        )


def _order_alerts(fired: Iterable[Alert], troubles: Sequence[Trouble]) -> tuple[Alert, ...]:
    """Return the alerts, first those of this machine, the most severe first.

    Alerts of the same severity have the order of the equivalent problems.
    """
    severities: dict[str, int] = {severity: at for at, severity in enumerate(SEVERITIES)}
    places = {(trouble.alert, trouble.subject): at for at, trouble in enumerate(troubles)}

    def rank(alert: Alert) -> tuple[bool, int, int]:
        place = places.get((alert.name, alert.subject), len(places))
        return alert.is_elsewhere, severities.get(alert.severity, len(SEVERITIES)), place

    return tuple(sorted(fired, key=rank))


def _draw_collector(report: Report) -> Collector:
    return Collector(
        name=report.collector,
        success=report.success,
        reason=report.reason or "",
        duration_seconds=report.seconds,
        last_success=report.last_success,
    )
