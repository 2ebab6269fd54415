"""Read a container's resource usage from the files of the container's control group.

Older kernels lack some files and values. The OOM kill count was added in Linux 4.13, and
`memory.peak` in Linux 5.19. cgroup v1 has a hierarchy for each controller, so the files of one
control group are in several folders. In cgroup v1, the values in `memory.stat` that include
subgroups (`total_...`) are read, because the usage and the limit also include subgroups. In cgroup
v2, the files of one control group are in one folder.
"""

from __future__ import annotations

import math

from trainvitals.sources.containers.blockdevices import BlockDevices
from trainvitals.sources.containers.cgroup_files import (
    add_up,
    find_number,
    parse_number,
    read_data,
    read_number,
    scale,
)
from trainvitals.sources.containers.cgrouppaths import GroupPaths
from trainvitals.sources.containers.reading import Usage

_MICROSECONDS = 1_000_000
_NANOSECONDS = 1_000_000_000
_PERCENT = 100.0
_LONGEST_PERCENT = 6
# cgroup v1 represents "no limit" as PAGE_COUNTER_MAX, the maximum number of pages, in bytes. The
# value depends on the page size (0x7ffffffffffff000 for 4 KiB).
_NO_LIMIT = 1 << 60


def read_usage(group: GroupPaths, time: float, devices: BlockDevices) -> Usage:
    """Read the resource usage from a control group's files.

    A field of the usage is None if the field's file does not exist or cannot be read.

    Args:
        group: The folders that contain the control group's files.
        time: The time of the reading, in seconds since 1970.
        devices: The underlying devices of the block devices.
    """
    return (_read_version_1 if group.version == 1 else _read_version_2)(group, time, devices)


def _read_version_1(group: GroupPaths, time: float, devices: BlockDevices) -> Usage:
    stat = read_data(group.memory, "memory.stat")
    usage = read_number(group.memory, "memory.usage_in_bytes")
    read_bytes, written_bytes = _read_blkio_traffic(group.blkio, devices)
    return Usage(
        time=time,
        cgroup_version=1,
        memory_usage_bytes=usage,
        memory_working_set_bytes=subtract_inactive(
            usage, _find_hierarchical(stat, b"inactive_file")
        ),
        memory_unreclaimable_bytes=add_up(
            [_find_hierarchical(stat, b"rss"), _find_hierarchical(stat, b"shmem")]
        ),
        memory_peak_bytes=read_number(group.memory, "memory.max_usage_in_bytes"),
        memory_limit_bytes=_read_limit_in_bytes(group.memory),
        oom_kills=find_number(read_data(group.memory, "memory.oom_control"), b"oom_kill"),
        cpu_seconds=scale(read_number(group.cpuacct, "cpuacct.usage"), _NANOSECONDS),
        cpu_throttled_seconds=scale(
            find_number(read_data(group.cpu, "cpu.stat"), b"throttled_time"), _NANOSECONDS
        ),
        cpu_limit_cores=_read_cfs_cores(group.cpu),
        processes=read_number(group.pids, "pids.current"),
        processes_limit=_read_limit(group.pids, "pids.max"),
        processes_refused=find_number(read_data(group.pids, "pids.events"), b"max"),
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )


def _read_version_2(group: GroupPaths, time: float, devices: BlockDevices) -> Usage:
    stat = read_data(group.memory, "memory.stat")
    usage = read_number(group.memory, "memory.current")
    cpu = read_data(group.cpu, "cpu.stat")
    some, _, full = (read_data(group.memory, "memory.pressure") or b"").partition(b"\n")
    traffic = read_data(group.blkio, "io.stat")
    return Usage(
        time=time,
        cgroup_version=2,
        memory_usage_bytes=usage,
        memory_working_set_bytes=subtract_inactive(usage, find_number(stat, b"inactive_file")),
        memory_unreclaimable_bytes=_add_unreclaimable(stat),
        memory_peak_bytes=read_number(group.memory, "memory.peak"),
        memory_limit_bytes=_read_limit(group.memory, "memory.max"),
        memory_waiting_seconds=scale(_find_pressure_total(some), _MICROSECONDS),
        memory_stalled_seconds=scale(_find_pressure_total(full), _MICROSECONDS),
        memory_pressure_ratio=find_pressure_ratio(full),
        oom_kills=find_number(read_data(group.memory, "memory.events"), b"oom_kill"),
        cpu_seconds=scale(find_number(cpu, b"usage_usec"), _MICROSECONDS),
        cpu_throttled_seconds=scale(find_number(cpu, b"throttled_usec"), _MICROSECONDS),
        cpu_limit_cores=_read_max_cores(group.cpu),
        processes=read_number(group.pids, "pids.current"),
        processes_limit=_read_limit(group.pids, "pids.max"),
        processes_refused=find_number(read_data(group.pids, "pids.events"), b"max"),
        read_bytes=_add_io_traffic(traffic, b"rbytes=", devices),
        written_bytes=_add_io_traffic(traffic, b"wbytes=", devices),
    )


def subtract_inactive(usage: int | None, inactive_file: int | None) -> int | None:
    """Return the memory working set, which is the memory usage without the inactive file cache.

    The result is None if the usage or the size of the inactive file cache is unknown.
    """
    return None if usage is None or inactive_file is None else max(0, usage - inactive_file)


def _read_limit(folder: str | None, name: str) -> int | None:
    """Read a limit of cgroup v2, or `pids.max` of cgroup v1.

    Returns:
        The limit; 0 if no limit is set; None if the limit is unknown.
    """
    data = read_data(folder, name)
    if data is None:
        return None
    return 0 if data.strip() == b"max" else parse_number(data)


def _find_hierarchical(stat: bytes | None, key: bytes) -> int | None:
    total = find_number(stat, b"total_" + key)
    return find_number(stat, key) if total is None else total


def _read_limit_in_bytes(folder: str | None) -> int | None:
    limit = read_number(folder, "memory.limit_in_bytes")
    return 0 if limit is not None and limit >= _NO_LIMIT else limit


def _read_cfs_cores(folder: str | None) -> float | None:
    quota = read_data(folder, "cpu.cfs_quota_us")
    if quota is None:
        return None
    if quota.strip() == b"-1":
        return 0.0
    return _divide(parse_number(quota), read_number(folder, "cpu.cfs_period_us"))


def _read_max_cores(folder: str | None) -> float | None:
    data = read_data(folder, "cpu.max")
    if data is None:
        return None
    quota, _, period = data.partition(b" ")
    return 0.0 if quota == b"max" else _divide(parse_number(quota), parse_number(period))


def _divide(quota: int | None, period: int | None) -> float | None:
    return None if quota is None or not period else quota / period


def _read_blkio_traffic(folder: str | None, devices: BlockDevices) -> tuple[int | None, int | None]:
    data = read_data(folder, "blkio.throttle.io_service_bytes_recursive")
    if data is None:
        data = read_data(folder, "blkio.throttle.io_service_bytes")
    if data is None:
        return None, None
    transfers: dict[bytes, dict[str, int]] = {b"Read": {}, b"Write": {}}
    for line in data.splitlines():
        device, _, rest = line.partition(b" ")  # "8:0 Read 4096", and "Total 4096" at the end
        operation, _, digits = rest.partition(b" ")
        number = parse_number(digits)
        if operation in transfers and number is not None:
            transfers[operation][device.decode("ascii", "replace")] = number
    return devices.add_up(transfers[b"Read"]), devices.add_up(transfers[b"Write"])


def _add_io_traffic(data: bytes | None, key: bytes, devices: BlockDevices) -> int | None:
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


def _add_unreclaimable(stat: bytes | None) -> int | None:
    # The three lists do not overlap, whereas locked anonymous memory is counted both in
    # `unevictable` and in `anon`.
    held = add_up(
        [find_number(stat, key) for key in (b"inactive_anon", b"active_anon", b"unevictable")]
    )
    if held is None:
        held = add_up([find_number(stat, key) for key in (b"anon", b"shmem")])
    if held is None:
        return None
    return held + (find_number(stat, b"slab_unreclaimable") or 0)


def _find_pressure_total(line: bytes) -> int | None:
    _, found, digits = line.rpartition(b" total=")
    return parse_number(digits) if found else None


def find_pressure_ratio(line: bytes) -> float | None:
    """Return the 10-second average in a line of a pressure file, 0 to 1; None if it is invalid."""
    percent = line.partition(b" avg10=")[2].partition(b" ")[0]
    if not percent or len(percent) > _LONGEST_PERCENT:
        return None
    try:
        ratio = float(percent) / _PERCENT
    except ValueError:
        return None
    return ratio if math.isfinite(ratio) and 0.0 <= ratio <= 1.0 else None
