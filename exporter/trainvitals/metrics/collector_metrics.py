"""The outcomes of the collectors, and the exporter's metrics about these outcomes."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from trainvitals import __version__
from trainvitals.metrics.families import Block, Family, label_samples


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a collector's reading in a scrape.

    Attributes:
        collector: The name of the collector.
        success: Whether the collector's reading is complete.
        answered: Whether the collector has returned a reading or failed at least once since the
            exporter started.
        seconds: The duration of the latest reading in seconds, or the time spent waiting if the
            reading is late; None before the first reading.
        reason: The reason why the reading is missing or incomplete; None if it is complete.
        timeouts: The number of late readings since the exporter started.
        omitted: The number of items, such as disks or processes, that the latest reading left out
            because of a limit or because a line could not be parsed.
        last_success: The time of the latest complete reading in Unix seconds; None before the first
            complete reading.
    """

    collector: str
    success: bool
    answered: bool
    seconds: float | None
    reason: str | None
    timeouts: int
    omitted: int
    last_success: float | None


def express_reports(reports: tuple[Report, ...]) -> Block:
    """Return the metric families that describe the collectors' outcomes."""
    timed = [report for report in reports if report.seconds is not None]
    whole = [report for report in reports if report.last_success is not None]
    failed = [report for report in reports if report.reason is not None]
    values: list[float] = [1]
    values += [report.success for report in reports]
    values += [report.seconds for report in timed if report.seconds is not None]
    values += [report.last_success for report in whole if report.last_success is not None]
    values += [report.timeouts for report in reports]
    values += [report.omitted for report in reports]
    values += [1] * len(failed)
    shape = (
        "trainvitals",
        tuple(report.collector for report in reports),
        tuple(report.collector for report in timed),
        tuple(report.collector for report in whole),
        tuple((report.collector, report.reason or "") for report in failed),
    )
    return Block(shape, lambda: _describe(*shape[1:]), values)


def _describe(
    names: tuple[str, ...],
    timed: tuple[str, ...],
    whole: tuple[str, ...],
    failed: tuple[tuple[str, str], ...],
) -> tuple[Family, ...]:
    python = ".".join(map(str, sys.version_info[:3]))
    build = (("", (("version", __version__), ("python", python))),)
    reasons = tuple(("", (("collector", name), ("reason", reason))) for name, reason in failed)
    families = (
        Family(
            "trainvitals_build_info",
            "info",
            "Which trainvitals this is. Source: trainvitals.__version__.",
            build,
        ),
        Family(
            "trainvitals_collector_success",
            "gauge",
            "Whether the collector's reading is here and whole. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_duration_seconds",
            "gauge",
            "How long its latest reading took. Source: scrape runner.",
            label_samples("collector", timed),
        ),
        Family(
            "trainvitals_collector_last_success_timestamp_seconds",
            "gauge",
            "When it last brought a whole reading. Source: scrape runner.",
            label_samples("collector", whole),
        ),
        Family(
            "trainvitals_collector_timeouts_total",
            "counter",
            "Readings that were not waited for. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_omitted_labels",
            "gauge",
            "What it left out, beyond its bounds or not understood. Source: scrape runner.",
            label_samples("collector", names),
        ),
        Family(
            "trainvitals_collector_failure_info",
            "info",
            "Why its reading is not whole. Source: scrape runner.",
            reasons,
        ),
    )
    return families if failed else families[:-1]
