"""Parse the engine's statistics, which are used if a control group cannot be read."""

from __future__ import annotations

from trainvitals.sources.containers.cgroup_files import scale
from trainvitals.sources.containers.cgroup_usage import subtract_inactive
from trainvitals.sources.containers.documents import (
    Document,
    as_mapping,
    get_list,
    get_mapping,
    get_number,
    get_text,
    get_time,
)
from trainvitals.sources.containers.reading import Usage

_NANOSECONDS = 1_000_000_000
# For "no limit", the kernel reports about 2^63 or 2^64 - 1.
_NO_LIMIT = 1 << 62


def parse_statistics(document: Document) -> Usage | None:
    """Parse the engine's answer to `/containers/{id}/stats`.

    The memory limit is not read, because the engine reports the host's memory if there is no limit.

    Returns:
        The container's resource usage; None if the container is not running.
    """
    time = get_time(document, "read")
    memory = get_mapping(document, "memory_stats")
    cpu = get_mapping(document, "cpu_stats")
    if time is None or not (memory.get("usage") or get_number(cpu, "online_cpus")):
        return None
    parts = get_mapping(memory, "stats")
    processor = get_mapping(cpu, "cpu_usage")
    throttling = get_mapping(cpu, "throttling_data")
    processes = get_mapping(document, "pids_stats")
    usage = get_number(memory, "usage")
    return Usage(
        time=time,
        cgroup_version=0,
        memory_usage_bytes=usage,
        memory_working_set_bytes=subtract_inactive(usage, _find_inactive_file(parts)),
        memory_unreclaimable_bytes=_find_unreclaimable(parts),
        memory_peak_bytes=get_number(memory, "max_usage"),
        cpu_seconds=scale(get_number(processor, "total_usage"), _NANOSECONDS),
        cpu_throttled_seconds=scale(get_number(throttling, "throttled_time"), _NANOSECONDS),
        processes=get_number(processes, "current"),
        processes_limit=_find_processes_limit(processes),
        read_bytes=_sum_blocks(document, "read"),
        written_bytes=_sum_blocks(document, "write"),
        received_bytes=_sum_networks(document, "rx_bytes"),
        transmitted_bytes=_sum_networks(document, "tx_bytes"),
    )


def _find_inactive_file(parts: Document) -> int | None:
    inactive = get_number(parts, "total_inactive_file")  # cgroup v1
    return get_number(parts, "inactive_file") if inactive is None else inactive


def _find_unreclaimable(parts: Document) -> int | None:
    if "total_rss" in parts:
        # cgroup v1 counts shared memory as anonymous memory, and the API has no member for shared
        # memory alone.
        names = ["total_inactive_anon", "total_active_anon", "total_unevictable"]
    else:
        names = ["anon", "unevictable", "slab_unreclaimable", "shmem"]
    found = [get_number(parts, name) for name in names]
    return sum(number or 0 for number in found) if found[0] is not None else None


def _find_processes_limit(processes: Document) -> int | None:
    if "current" not in processes:
        return None
    limit = get_number(processes, "limit")
    return limit if limit is not None and 0 < limit < _NO_LIMIT else 0


def _sum_blocks(document: Document, operation: str) -> int | None:
    entries = get_list(get_mapping(document, "blkio_stats"), "io_service_bytes_recursive")
    found = [
        get_number(as_mapping(entry), "value") or 0
        for entry in entries
        if get_text(as_mapping(entry), "op").lower() == operation  # cgroup v1 writes `Read`
    ]
    return sum(found) if found else None


def _sum_networks(document: Document, name: str) -> int | None:
    found = [
        get_number(as_mapping(network), name)
        for network in get_mapping(document, "networks").values()
    ]
    return sum(number or 0 for number in found) if found else None
