"""The verdicts of `/health` and `/ready`.

`/health`: `status` (`healthy`; `degraded`, when a collector is not whole; `unhealthy`, with status
code 503, when expected accelerators are missing or a critical limit is passed), `timestamp` and
`checks`: `hpu_available`, `hpu_count`, `gpu_available`, `gpu_count`, `memory_usage` and
`disk_space` (percent of memory and of the root file system in use; null when unknown), `problems`
(one line each), and `collectors` (`ok`, or the reason why not).

`/ready`: `ready` and `checks`: `collectors` (every collector has answered since the start, even if
to say that it failed) and `accelerators` (as many answer as are expected).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.scrape import Snapshot
from trainvitals.sources.accelerators.reading import AcceleratorsReading, Kind
from trainvitals.sources.filesystem import FilesystemReading
from trainvitals.sources.memory import MemoryReading

CRITICAL_MEMORY_PERCENT = 98.0
CRITICAL_DISK_PERCENT = 99.0

_KINDS: tuple[Kind, ...] = ("gpu", "hpu")


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer to "how is it?".

    Attributes:
        good: Whether the status code is 200.
        document: What to say, ready for JSON.
    """

    good: bool
    document: dict[str, object]


def judge_health(
    snapshot: Snapshot, expected: Mapping[Kind, int], *, now: float | None = None
) -> Verdict:
    """Judge a snapshot for `/health`.

    Args:
        snapshot: What was read.
        expected: How many accelerators of each kind there should be.
        now: The Unix time to put into the answer.
    """
    counts = _count_devices(snapshot)
    memory = _memory_percent(snapshot)
    disk = _disk_percent(snapshot)
    problems = _find_missing(counts, expected)
    if memory is not None and memory >= CRITICAL_MEMORY_PERCENT:
        problems.append(f"memory is {memory:.1f} % in use")
    if disk is not None and disk >= CRITICAL_DISK_PERCENT:
        problems.append(f"the root file system is {disk:.1f} % in use")
    collectors = {report.collector: report.reason or "ok" for report in snapshot.reports}
    is_whole = all(report.success for report in snapshot.reports)
    status = "unhealthy" if problems else "healthy" if is_whole else "degraded"
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    checks: dict[str, object] = {}
    for kind in reversed(_KINDS):
        checks[f"{kind}_available"] = counts[kind] > 0
        checks[f"{kind}_count"] = counts[kind]
    checks |= {"memory_usage": memory, "disk_space": disk}
    checks |= {"problems": problems, "collectors": collectors}
    document: dict[str, object] = {"status": status, "timestamp": moment, "checks": checks}
    return Verdict(not problems, document)


def judge_readiness(snapshot: Snapshot, expected: Mapping[Kind, int]) -> Verdict:
    """Judge a snapshot for `/ready`; the arguments are those of `judge_health`."""
    checks = {
        "collectors": all(report.answered for report in snapshot.reports),
        "accelerators": not _find_missing(_count_devices(snapshot), expected),
    }
    ready = all(checks.values())
    return Verdict(ready, {"ready": ready, "checks": checks})


def _count_devices(snapshot: Snapshot) -> dict[Kind, int]:
    reading = snapshot.readings.get("accelerator")
    if not isinstance(reading, AcceleratorsReading):
        return dict.fromkeys(_KINDS, 0)
    up = [device.identity.kind for device in reading.devices if device.state == "ok"]
    return {kind: up.count(kind) for kind in _KINDS}


def _find_missing(counts: Mapping[Kind, int], expected: Mapping[Kind, int]) -> list[str]:
    return [
        f"{counts[kind]} of {count} expected {kind}s answer"
        for kind, count in expected.items()
        if counts[kind] < count
    ]


def _memory_percent(snapshot: Snapshot) -> float | None:
    reading = snapshot.readings.get("memory")
    if not isinstance(reading, MemoryReading) or not reading.total_bytes:
        return None
    return round(100 * (1 - reading.available_bytes / reading.total_bytes), 1)


def _disk_percent(snapshot: Snapshot) -> float | None:
    reading = snapshot.readings.get("filesystem")
    if not isinstance(reading, FilesystemReading):
        return None
    for mount in reading.filesystems:
        if mount.mountpoint == "/" and mount.space is not None and mount.space.size_bytes:
            return round(100 * (1 - mount.space.avail_bytes / mount.space.size_bytes), 1)
    return None
