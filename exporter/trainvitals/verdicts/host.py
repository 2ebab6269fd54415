"""Memory and file system problems, according to the thresholds of the corresponding alerts."""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.sources.host.filesystem import Filesystem, FilesystemReading, Space
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.units import (
    count_noun,
    format_bytes,
    format_bytes_of,
    format_duration,
    format_percent,
)
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.verdicts.trouble import Severity, Trouble

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - used as a name, not written to


def judge_memory(reading: MemoryReading, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield a problem if the machine is low on memory."""
    ratio = measure_memory(reading)
    if ratio is not None and ratio > thresholds["host_high_memory_usage:used_ratio"]:
        yield _blame(
            "HostHighMemoryUsage",
            "memory nearly full",
            f"{format_bytes_of(reading.used_bytes, reading.total_bytes)} of memory are in use",
            "critical",
        )


def measure_memory(reading: MemoryReading) -> float | None:
    """Return the share of the machine's memory in use, 0 to 1; None if the share is unknown."""
    used = reading.used_bytes
    return None if used is None or not reading.total_bytes else used / reading.total_bytes


def judge_pressure(stalled_ratio: float | None, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield a problem if the machine's tasks wait for memory.

    Args:
        stalled_ratio: The share of the past 2 minutes in which all tasks waited for memory (PSI
            `full`), 0 to 1; None if the share is unknown.
        thresholds: The thresholds of the alerts, by name.
    """
    if stalled_ratio is None or stalled_ratio <= thresholds["host_memory_pressure:stalled_ratio"]:
        return
    yield _blame(
        "HostMemoryPressure",
        "is stalled for lack of memory",
        f"all tasks waited for memory in {format_percent(stalled_ratio)} of the last 2 minutes",
        "critical",
    )


def judge_waiting(
    wait_ratio: float | None, stalled_ratio: float | None, thresholds: Thresholds
) -> Iterator[Trouble]:
    """Yield a problem if the machine waits for disks.

    Args:
        wait_ratio: The share of the past 10 minutes in which CPUs waited for a disk, 0 to 1; None
            if the share is unknown.
        stalled_ratio: The share of the past 10 minutes in which all tasks waited for a disk, 0 to
            1; None if the share is unknown, or if no run uses the machine.
        thresholds: The thresholds of the alerts, by name.
    """
    shares = (
        (stalled_ratio, thresholds["host_io_bottleneck:stalled_ratio"]),
        (wait_ratio, thresholds["host_io_bottleneck:wait_ratio"]),
    )
    for share, limit in shares:
        if share is not None and share > limit:
            summary = f"it waited for disks in {format_percent(share)} of the last 10 minutes"
            yield _blame("HostIOBottleneck", "waits for disks", summary)
            return


def judge_kills(count: int) -> Iterator[Trouble]:
    """Yield a problem if OOM kills occurred recently.

    Args:
        count: The number of OOM kills in the past 15 minutes.
    """
    if count:
        processes = count_noun(count, "process", "processes")
        summary = f"the OOM killer killed {processes} in the last 15 minutes"
        yield _blame("HostOOMKill", "out of memory", summary, "critical")


def judge_filesystems(reading: FilesystemReading, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield the problems of a machine's file systems."""
    for each in reading.filesystems:
        yield from judge_filesystem(each, thresholds)


def judge_filesystem(each: Filesystem, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield the problems of one file system."""
    where, space = each.mountpoint, each.space
    if each.responding is False:
        summary = each.trouble or "it does not respond, and processes that access it hang"
        yield _blame("HostFilesystemNotResponding", "does not answer", summary, "critical", where)
    if space is None:
        return
    yield from judge_space(where, space, thresholds)
    yield from judge_inodes(where, space, thresholds)


def judge_inodes(where: str, space: Space, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield a problem if a file system is running out of inodes."""
    if not space.files or space.files_free is None or space.readonly:
        return
    free = space.files_free / space.files
    if free < thresholds["host_inodes_low:free_ratio"]:
        summary = f"{format_percent(free)} of its inodes are free"
        yield _blame("HostInodesLow", "inodes nearly used up", summary, "warning", where)


def judge_clock(offset_seconds: float, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield a problem if the machine's clock is wrong.

    Args:
        offset_seconds: The error of the clock in seconds, positive or negative.
        thresholds: The thresholds of the alerts, by name.
    """
    off = abs(offset_seconds)
    if off > thresholds["host_clock_skew:offset_seconds"]:
        yield _blame("HostClockSkew", "clock is wrong", f"its clock is {format_duration(off)} off")


def judge_space(where: str, space: Space, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield the problems with the free space of a file system, but not with its inodes."""
    if where == SHARED_MEMORY:
        yield from _judge_shared_memory(space, thresholds)
    else:
        yield from _judge_disk(where, space, thresholds)


def _judge_shared_memory(space: Space, thresholds: Thresholds) -> Iterator[Trouble]:
    if not space.size_bytes:
        return
    if space.avail_bytes / space.size_bytes < thresholds["host_shared_memory_low:avail_ratio"]:
        yield _blame(
            "HostSharedMemoryLow", "nearly full", _describe(space), "warning", SHARED_MEMORY
        )


def _judge_disk(where: str, space: Space, thresholds: Thresholds) -> Iterator[Trouble]:
    """Yield the problems of a disk, unless the disk is read-only or small, such as a boot disk."""
    size, free = space.size_bytes, space.avail_bytes
    if space.readonly or size < thresholds["host_disk_space_low:small_size_bytes"]:
        return
    if free < thresholds["host_disk_full:avail_bytes"]:
        yield _blame("HostDiskFull", "full", _describe(space), "critical", where)
    is_large = size >= thresholds["host_disk_space_low:large_size_bytes"]
    is_short = free < thresholds["host_disk_space_low:avail_bytes"]
    if free < size * thresholds["host_disk_space_low:avail_ratio"] or (is_large and is_short):
        severity: Severity = "critical" if is_short else "warning"
        yield _blame("HostDiskSpaceLow", "nearly full", _describe(space), severity, where)


def _describe(space: Space) -> str:
    return f"{format_bytes(space.avail_bytes)} of {format_bytes(space.size_bytes)} are free"


def _blame(
    alert: str, name: str, summary: str, severity: Severity = "warning", where: str = ""
) -> Trouble:
    return Trouble("filesystem" if where else "host", where, name, severity, summary, alert)
