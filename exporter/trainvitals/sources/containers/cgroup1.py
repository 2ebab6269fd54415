"""What a container uses, from the files of control groups version 1.

Each controller has a hierarchy of its own. Values of `memory.stat` are taken with those of the
groups below (`total_...`), as the usage and the limit count them too.
"""

from __future__ import annotations

from trainvitals.sources.containers.blockdevices import BlockDevices
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

# "No limit" is the largest number that the kernel can count in pages, which vary in size.
_NO_LIMIT = 1 << 60
_NANOSECONDS = 1_000_000_000


def read_usage(group: GroupPaths, time: float, devices: BlockDevices) -> Usage:
    """Read what the group's files say; a field whose file is not there is None.

    Args:
        group: Where the files are.
        time: What time it is, seconds since 1970.
        devices: Which block devices lie on which.
    """
    stat = read_data(group.memory, "memory.stat")
    usage = read_number(group.memory, "memory.usage_in_bytes")
    inactive = _find_total(stat, b"inactive_file")
    read_bytes, written_bytes = _read_traffic(group.blkio, devices)
    return Usage(
        time=time,
        cgroup_version=1,
        memory_usage_bytes=usage,
        memory_working_set_bytes=(
            None if usage is None or inactive is None else max(0, usage - inactive)
        ),
        memory_unreclaimable_bytes=add_up([_find_total(stat, b"rss"), _find_total(stat, b"shmem")]),
        memory_peak_bytes=read_number(group.memory, "memory.max_usage_in_bytes"),
        memory_limit_bytes=_read_memory_limit(group.memory),
        oom_kills=find_number(read_data(group.memory, "memory.oom_control"), b"oom_kill"),
        cpu_seconds=scale(read_number(group.cpuacct, "cpuacct.usage"), _NANOSECONDS),
        cpu_throttled_seconds=scale(
            find_number(read_data(group.cpu, "cpu.stat"), b"throttled_time"), _NANOSECONDS
        ),
        cpu_limit_cores=_read_cores(group.cpu),
        processes=read_number(group.pids, "pids.current"),
        processes_limit=read_processes_limit(group.pids),
        processes_refused=find_number(read_data(group.pids, "pids.events"), b"max"),
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )


def read_processes_limit(folder: str | None) -> int | None:
    """Read `pids.max`, which both versions have; 0 for no limit, None where it is not there."""
    data = read_data(folder, "pids.max")
    if data is None:
        return None
    return 0 if data.strip() == b"max" else parse_number(data)


def _find_total(stat: bytes | None, key: bytes) -> int | None:
    total = find_number(stat, b"total_" + key)
    return find_number(stat, key) if total is None else total


def _read_memory_limit(folder: str | None) -> int | None:
    limit = read_number(folder, "memory.limit_in_bytes")
    return 0 if limit is not None and limit >= _NO_LIMIT else limit


def _read_cores(folder: str | None) -> float | None:
    quota = read_data(folder, "cpu.cfs_quota_us")
    if quota is None:
        return None
    if quota.strip() == b"-1":
        return 0.0
    period = read_number(folder, "cpu.cfs_period_us")
    number = parse_number(quota)
    return None if number is None or not period else number / period


def _read_traffic(folder: str | None, devices: BlockDevices) -> tuple[int | None, int | None]:
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
