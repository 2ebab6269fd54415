"""The responses of `/health` and `/ready`.

`/health` returns `status`, `timestamp` and `checks`. The values of `status` are

    healthy     no problem was found
    degraded    a problem was found, or a collector's reading is incomplete
    unhealthy   expected accelerators do not respond, the root file system is full, or all tasks
                wait for memory, each according to the machine's own readings; the status code is
                then 503

and `checks` contains

    hpu_available, hpu_count, gpu_available, gpu_count
    memory_usage, disk_space  used percentage of memory and root file system; null if it is unknown
    problems                  one line for each cause of `unhealthy`
    collectors                `ok` for each collector, or the reason for a failure
    troubles, unknowns        as in `/api/v1/overview`, with the alerts that Prometheus has returned
                              so far: responses do not wait for Prometheus, and unknown alerts do
                              not make the status `degraded`

`/ready` returns `ready` and `checks`. The following checks determine `ready`:

    collectors                every collector has returned or failed since the start
    accelerators              the expected number of accelerators respond

The following checks describe the machine's training runs and Gaudi cards; a check is null if the
machine has no such run or card:

    model_loaded              every run that is still alive has left the phase `init`
    data_available            every run that is still alive has received a batch
    hpu_initialized           a Gaudi card responds
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from trainvitals.metrics.runner import Snapshot
from trainvitals.sources.accelerators.reading import AcceleratorsReading, Kind
from trainvitals.sources.host.filesystem import FilesystemReading
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.runs.reading import RunsReading
from trainvitals.units import format_iso
from trainvitals.verdicts.host import measure_memory
from trainvitals.verdicts.machine import Judgement, take
from trainvitals.verdicts.run_states import judge_start
from trainvitals.verdicts.trouble import Trouble

_LIMITS = (("HostDiskFull", "/"), ("HostMemoryPressure", ""))
_KINDS: tuple[Kind, ...] = ("gpu", "hpu")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a request for `/health` or `/ready`.

    Attributes:
        good: Whether the response has status code 200 instead of 503.
        document: The body of the response before it is encoded as JSON.
    """

    good: bool
    document: dict[str, object]


def judge_health(
    snapshot: Snapshot,
    expected: Mapping[Kind, int],
    judgement: Judgement,
    *,
    now: float | None = None,
) -> Verdict:
    """Return the response of `/health`.

    Args:
        snapshot: A snapshot of all collectors.
        expected: The expected number of accelerators of each kind.
        judgement: The problems of the machine, and the sources that are missing.
        now: The timestamp of the response in Unix seconds; None for the current time.
    """
    counts = _count_devices(snapshot)
    problems = [*_find_missing(counts, expected), *_list_limits(judgement.troubles)]
    is_whole = all(report.success for report in snapshot.reports) and not any(
        trouble.severity != "info" for trouble in judgement.troubles
    )
    checks: dict[str, object] = {}
    for kind in reversed(_KINDS):
        checks[f"{kind}_available"] = counts[kind] > 0
        checks[f"{kind}_count"] = counts[kind]
    checks |= {
        "memory_usage": _measure_memory_percent(snapshot),
        "disk_space": _measure_disk_percent(snapshot),
        "problems": problems,
        "collectors": {report.collector: report.reason or "ok" for report in snapshot.reports},
        "troubles": [asdict(trouble) for trouble in judgement.troubles],
        "unknowns": [asdict(unknown) for unknown in judgement.unknowns],
    }
    document: dict[str, object] = {
        "status": "unhealthy" if problems else "healthy" if is_whole else "degraded",
        "timestamp": format_iso(now, timespec="seconds"),
        "checks": checks,
    }
    return Verdict(not problems, document)


def judge_readiness(snapshot: Snapshot, expected: Mapping[Kind, int]) -> Verdict:
    """Return the response of `/ready`; the arguments are those of `judge_health`."""
    checks = {
        "collectors": all(report.answered for report in snapshot.reports),
        "accelerators": not _find_missing(_count_devices(snapshot), expected),
    }
    ready = all(checks.values())
    runs = take(snapshot.readings, "training", RunsReading)
    start = judge_start(runs.ranks if runs else ())
    described = {
        "model_loaded": start.has_model,
        "data_available": start.has_data,
        "hpu_initialized": _has_initialized_hpu(snapshot, expected),
    }
    return Verdict(ready, {"ready": ready, "checks": checks | described})


def _has_initialized_hpu(snapshot: Snapshot, expected: Mapping[Kind, int]) -> bool | None:
    """Return whether a Gaudi card responds; None if no Gaudi card is present or expected."""
    reading = take(snapshot.readings, "accelerator", AcceleratorsReading)
    states = [
        device.state
        for device in (reading.devices if reading else ())
        if device.identity.kind == "hpu"
    ]
    return "ok" in states if states or expected.get("hpu") else None


def _count_devices(snapshot: Snapshot) -> dict[Kind, int]:
    reading = take(snapshot.readings, "accelerator", AcceleratorsReading)
    devices = reading.devices if reading else ()
    up = [device.identity.kind for device in devices if device.state == "ok"]
    return {kind: up.count(kind) for kind in _KINDS}


def _find_missing(counts: Mapping[Kind, int], expected: Mapping[Kind, int]) -> list[str]:
    return [
        f"{counts[kind]} of {count} expected {kind}s answer"
        for kind, count in expected.items()
        if counts[kind] < count
    ]


def _list_limits(troubles: tuple[Trouble, ...]) -> Iterator[str]:
    """Yield a line for each problem that makes the machine unhealthy."""
    for trouble in troubles:
        # An alert is ignored, because it stays active for minutes after its condition has ended and
        # must not cause a restart.
        if trouble.subject_kind != "alert" and (trouble.alert, trouble.subject) in _LIMITS:
            yield trouble.words


def _measure_memory_percent(snapshot: Snapshot) -> float | None:
    reading = take(snapshot.readings, "memory", MemoryReading)
    ratio = None if reading is None else measure_memory(reading)
    return None if ratio is None else round(100 * ratio, 1)


def _measure_disk_percent(snapshot: Snapshot) -> float | None:
    reading = take(snapshot.readings, "filesystem", FilesystemReading)
    for mount in reading.filesystems if reading else ():
        if mount.mountpoint == "/" and mount.space is not None and mount.space.size_bytes:
            return round(100 * (1 - mount.space.avail_bytes / mount.space.size_bytes), 1)
    return None
