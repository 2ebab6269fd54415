"""The problems of a machine and the machine's missing sources, which every view shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.alerts import Alert
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.host.filesystem import FilesystemReading
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.runs.reading import RunsReading
from trainvitals.verdicts.accelerator_faults import judge_faults
from trainvitals.verdicts.accelerators import Work, judge_accelerators, name_device
from trainvitals.verdicts.collectors import (
    NO_PROMETHEUS,
    CollectorReport,
    judge_collectors,
    list_unread,
    list_unread_files,
)
from trainvitals.verdicts.containers import judge_containers
from trainvitals.verdicts.host import (
    judge_filesystems,
    judge_kills,
    judge_memory,
    judge_pressure,
    judge_waiting,
)
from trainvitals.verdicts.run_bounds import Habit
from trainvitals.verdicts.runs import judge_runs
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.verdicts.trouble import (
    OUT_OF_HOST_MEMORY,
    SEVERITIES,
    Severity,
    Trouble,
    Unknown,
    drop_explained,
    sort_troubles,
)

Reading = TypeVar("Reading")


@dataclass(frozen=True, slots=True)
class Past:
    """The history of a machine over the past 15 minutes.

    Attributes:
        work: The recent utilization of each accelerator, by UUID.
        habits: The phases of each rank over the past 10 minutes, by run and rank.
        oom_kills: The number of OOM kills in the past 15 minutes.
        memory_stalled_ratio: The share of the past 2 minutes in which all tasks waited for memory,
            0 to 1; None if the share is unknown.
        io_wait_ratio: The share of the past 10 minutes in which CPUs waited for a disk, 0 to 1;
            None if the share is unknown.
        io_stalled_ratio: The share of the past 10 minutes in which all tasks waited for a disk, 0
            to 1; None if the share is unknown.
    """

    work: Mapping[str, Work] = field(default_factory=dict)
    habits: Mapping[str, Mapping[str, Habit]] = field(default_factory=dict)
    oom_kills: int = 0
    memory_stalled_ratio: float | None = None
    io_wait_ratio: float | None = None
    io_stalled_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Alerts:
    """The alerts that Prometheus reports.

    Attributes:
        firing: The alerts that are firing; None if the alerts are unknown.
        reason: The reason why the alerts are unknown; an empty string if no Prometheus is
            configured.
    """

    firing: Sequence[Alert] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The problems of a machine, the most severe first, and the machine's missing sources."""

    troubles: tuple[Trouble, ...] = ()
    unknowns: tuple[Unknown, ...] = ()


def judge_machine(
    reports: Sequence[CollectorReport],
    readings: Mapping[str, object],
    past: Past,
    thresholds: Thresholds,
    now: float,
    alerts: Alerts,
) -> Judgement:
    """Return the problems of a machine and the machine's missing sources.

    Args:
        reports: The result of each collector.
        readings: The readings by collector name, without the readings of failed collectors.
        past: The history of the machine.
        thresholds: The thresholds of the alerts, by name.
        now: The current time in Unix seconds.
        alerts: The alerts that Prometheus reports.
    """
    found = [
        *_judge_readings(readings, past, thresholds, now),
        *judge_collectors(reports, readings),
    ]
    found += _add_alerts(found, alerts.firing or ())
    return Judgement(
        sort_troubles(drop_explained(found, _list_held(readings))),
        (*list_unread(reports, readings), *list_unread_files(readings), *_list_unknown(alerts)),
    )


def take(readings: Mapping[str, object], name: str, kind: type[Reading]) -> Reading | None:
    """Return the reading of a collector; None if no reading of the expected type exists."""
    reading = readings.get(name)
    return reading if isinstance(reading, kind) else None


def _judge_readings(
    readings: Mapping[str, object], past: Past, thresholds: Thresholds, now: float
) -> Iterator[Trouble]:
    if (devices := take(readings, "accelerator", AcceleratorsReading)) is not None:
        yield from judge_faults(devices, past.work, thresholds, now)
        yield from judge_accelerators(devices, past.work, thresholds)
    if (runs := take(readings, "training", RunsReading)) is not None:
        yield from judge_runs(runs, past.habits, thresholds, now)
    if (containers := take(readings, "container", ContainersReading)) is not None:
        yield from judge_containers(containers, thresholds, now)
    if (filesystems := take(readings, "filesystem", FilesystemReading)) is not None:
        yield from judge_filesystems(filesystems, thresholds)
    if (memory := take(readings, "memory", MemoryReading)) is not None:
        yield from judge_memory(memory, thresholds)
        yield from judge_kills(past.oom_kills)
    yield from judge_pressure(past.memory_stalled_ratio, thresholds)
    stalled = past.io_stalled_ratio if _has_work(devices, runs) else None
    yield from judge_waiting(past.io_wait_ratio, stalled, thresholds)


def _list_held(readings: Mapping[str, object]) -> dict[str, frozenset[str]]:
    """Return the accelerators of each run in which every rank reports its accelerators.

    If one of these accelerators does not respond, the result also contains all expected kinds,
    because the unresponsive accelerator may be the one that is missing from a kind.
    """
    devices = take(readings, "accelerator", AcceleratorsReading)
    runs = take(readings, "training", RunsReading)
    known = devices.devices if devices else ()
    names = {each.identity.uuid: name_device(each.identity) for each in known}
    up = {each.identity.uuid for each in known if each.state == "ok"}
    kinds = frozenset(kind for kind, _ in devices.expected) if devices else frozenset()
    uuids: dict[str, list[tuple[str, ...]]] = {}
    for rank in runs.ranks if runs else ():
        uuids.setdefault(rank.run, []).append(rank.gpu_uuids)
    held = {run: frozenset(chain(*ranks)) for run, ranks in uuids.items() if all(ranks)}
    return {
        run: frozenset(names.get(uuid, uuid) for uuid in those)
        | (frozenset() if those <= up else kinds)
        for run, those in held.items()
    }


def _has_work(devices: AcceleratorsReading | None, runs: RunsReading | None) -> bool:
    """Return whether a run is alive on this machine or a process uses an accelerator."""
    ranks = runs.ranks if runs else ()
    return any(
        rank.ending is None and rank.liveness is not None and rank.liveness.is_alive
        for rank in ranks
    ) or any(
        each.measurements is not None and bool(each.measurements.processes)
        for each in (devices.devices if devices else ())
    )


def _add_alerts(found: Sequence[Trouble], firing: Iterable[Alert]) -> list[Trouble]:
    """Return this machine's firing alerts as problems, except alerts that a problem reports."""
    known = {(trouble.alert, trouble.subject) for trouble in found}
    # An alert that is aggregated over the machine has no subject.
    known |= {(trouble.alert, "") for trouble in found}
    # An OOM kill of a run triggers TrainingOutOfMemory and TrainingRunLost; the latter contains
    # more detail.
    known |= {
        ("TrainingOutOfMemory", trouble.subject)
        for trouble in found
        if trouble.alert == "TrainingRunLost" and trouble.name == OUT_OF_HOST_MEMORY
    }
    return [
        Trouble("alert", each.subject, each.name, _name_severity(each), each.summary, each.name)
        for each in firing
        if not each.is_elsewhere and (each.name, each.subject) not in known
    ]


def _name_severity(alert: Alert) -> Severity:
    return next((each for each in SEVERITIES if each == alert.severity), "info")


def _list_unknown(alerts: Alerts) -> Iterator[Unknown]:
    if alerts.firing is None:
        yield Unknown("alert", alerts.reason or NO_PROMETHEUS)
