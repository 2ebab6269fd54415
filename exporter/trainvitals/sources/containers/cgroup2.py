"""What a container uses, from the files of control groups version 2, which are all in one folder."""

from __future__ import annotations

import math

from trainvitals.sources.containers.blockdevices import BlockDevices
from trainvitals.sources.containers.cgroup1 import read_processes_limit
from trainvitals.sources.containers.cgrouppaths import GroupPaths
from trainvitals.sources.containers.figures import (
    add_up,
    find_number,
    parse_number,
    read_data,
    read_number,
    scale,
)
from trainvitals.sources.containers.reading import Usage

_MICROSECONDS = 1_000_000
_PERCENT = 100.0
_LONGEST_PERCENT = 6


def read_usage(group: GroupPaths, time: float, devices: BlockDevices) -> Usage:
    """Read what the group's files say; a field whose file is not there is None.

    Args:
        group: Where the files are.
        time: What time it is, seconds since 1970.
        devices: Which block devices lie on which.
    """
    stat = read_data(group.memory, "memory.stat")
    usage = read_number(group.memory, "memory.current")
    inactive = find_number(stat, b"inactive_file")
    cpu = read_data(group.cpu, "cpu.stat")
    some, full = _split_pressure(read_data(group.memory, "memory.pressure"))
    traffic = read_data(group.blkio, "io.stat")
    return Usage(
        time=time,
        cgroup_version=2,
        memory_usage_bytes=usage,
        memory_working_set_bytes=(
            None if usage is None or inactive is None else max(0, usage - inactive)
        ),
        memory_unreclaimable_bytes=_add_unreclaimable(stat),
        memory_peak_bytes=read_number(group.memory, "memory.peak"),
        memory_limit_bytes=_read_memory_limit(group.memory),
        memory_waiting_seconds=scale(_find_total(some), _MICROSECONDS),
        memory_stalled_seconds=scale(_find_total(full), _MICROSECONDS),
        memory_pressure_ratio=_find_ratio(full),
        oom_kills=find_number(read_data(group.memory, "memory.events"), b"oom_kill"),
        cpu_seconds=scale(find_number(cpu, b"usage_usec"), _MICROSECONDS),
        cpu_throttled_seconds=scale(find_number(cpu, b"throttled_usec"), _MICROSECONDS),
        cpu_limit_cores=_read_cores(group.cpu),
        processes=read_number(group.pids, "pids.current"),
        processes_limit=read_processes_limit(group.pids),
        processes_refused=find_number(read_data(group.pids, "pids.events"), b"max"),
        read_bytes=_add_traffic(traffic, b"rbytes=", devices),
        written_bytes=_add_traffic(traffic, b"wbytes=", devices),
    )


def _add_unreclaimable(stat: bytes | None) -> int | None:
    # The lists are exact: anonymous memory that is locked is on the list `unevictable`, and
    # counted in `anon` as well.
    held = add_up(
        [find_number(stat, key) for key in (b"inactive_anon", b"active_anon", b"unevictable")]
    )
    if held is None:
        held = add_up([find_number(stat, key) for key in (b"anon", b"shmem")])
    if held is None:
        return None
    return held + (find_number(stat, b"slab_unreclaimable") or 0)


def _read_memory_limit(folder: str | None) -> int | None:
    data = read_data(folder, "memory.max")
    if data is None:
        return None
    return 0 if data.strip() == b"max" else parse_number(data)


def _read_cores(folder: str | None) -> float | None:
    data = read_data(folder, "cpu.max")
    if data is None:
        return None
    quota, _, rest = data.partition(b" ")
    if quota == b"max":
        return 0.0
    number, period = parse_number(quota), parse_number(rest)
    return None if number is None or not period else number / period


def _split_pressure(data: bytes | None) -> tuple[bytes, bytes]:
    some, _, full = (data or b"").partition(b"\n")
    return some, full


def _find_total(line: bytes) -> int | None:
    _, found, digits = line.rpartition(b" total=")
    return parse_number(digits) if found else None


def _find_ratio(line: bytes) -> float | None:
    percent = line.partition(b" avg10=")[2].partition(b" ")[0]
    if not percent or len(percent) > _LONGEST_PERCENT:
        return None
    try:
        ratio = float(percent) / _PERCENT
    except ValueError:
        return None
    return ratio if math.isfinite(ratio) and 0.0 <= ratio <= 1.0 else None


def _add_traffic(data: bytes | None, key: bytes, devices: BlockDevices) -> int | None:
    if data is None:
        return None
    transfers = {}
    for line in data.splitlines():
        device, _, rest = line.partition(b" ")
        for column in rest.split():
            if column.startswith(key):
                number = parse_number(column[len(key) :])
                transfers[device.decode("ascii", "replace")] = number or 0
    return devices.add_up(transfers)
