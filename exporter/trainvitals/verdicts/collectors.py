"""Missing sources of information: collectors that fail, and alerts that are unknown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.host.filesystem import FilesystemReading
from trainvitals.sources.runs.reading import RunsReading
from trainvitals.verdicts.accelerators import is_lost
from trainvitals.verdicts.trouble import SubjectKind, Trouble, Unknown

NO_PROMETHEUS = "no Prometheus is configured; set TRAINVITALS_PROMETHEUS_URL"

_SUBJECTS: Mapping[str, SubjectKind] = {
    "accelerator": "accelerator",
    "training": "run",
    "container": "container",
    "filesystem": "filesystem",
}


class CollectorReport(Protocol):
    """The result of a collector, such as a `trainvitals.metrics.collector_metrics.Report`."""

    @property
    def collector(self) -> str:
        """The name of the collector."""
        ...

    @property
    def success(self) -> bool:
        """Whether the collector returned a complete reading."""
        ...

    @property
    def reason(self) -> str | None:
        """The reason why the collector did not succeed; None if the collector succeeded."""
        ...


def judge_collectors(
    reports: Sequence[CollectorReport], readings: Mapping[str, object]
) -> Iterator[Trouble]:
    """Yield a problem for each collector that fails.

    A collector is omitted if its reading is incomplete because a device or a file server does not
    respond. The missing response is a separate problem.

    Args:
        reports: The result of each collector.
        readings: The readings by collector name, without the readings of failed collectors.
    """
    for report in reports:
        if not report.success and not _is_explained(readings.get(report.collector)):
            yield Trouble(
                "collector",
                report.collector,
                "cannot read",
                "warning",
                report.reason or "it failed",
                "ExporterCollectorFailed",
            )


def list_unread(
    reports: Sequence[CollectorReport], readings: Mapping[str, object]
) -> Iterator[Unknown]:
    """Yield the subjects that are unknown because a collector has no reading."""
    for report in reports:
        if not report.success and report.collector not in readings:
            kind = _SUBJECTS.get(report.collector, "host")
            yield Unknown(kind, f"collector {report.collector}: {report.reason or 'it failed'}")


def list_unread_files(readings: Mapping[str, object]) -> Iterator[Unknown]:
    """Yield the run logs and tables in unknown formats, and the flags that match no file."""
    reading = readings.get("training")
    if not isinstance(reading, RunsReading):
        return
    for path in reading.followed.not_understood:
        yield Unknown(
            "run",
            f"no line of {path} is understood; see: trainvitals runs explain {shlex.quote(path)}",
        )
    for flag in reading.followed.unmatched:
        yield Unknown("run", f"{flag} matches no file; correct it, or remove it")


def _is_explained(reading: object) -> bool:
    if isinstance(reading, AcceleratorsReading):
        return any(is_lost(device) for device in reading.devices)
    if isinstance(reading, FilesystemReading):
        return any(each.responding is False for each in reading.filesystems)
    return False
