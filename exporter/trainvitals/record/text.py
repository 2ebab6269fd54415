"""The text format of a snapshot, for people and for `grep`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo

from trainvitals.foreign_text import clean_text
from trainvitals.record.snapshot import Holder, Kernel, Snapshot
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.containers.reading import ContainerReading, Death
from trainvitals.sources.host.filesystem import Filesystem
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.processes import Process
from trainvitals.units import (
    UNKNOWN,
    format_bytes,
    format_bytes_of,
    format_clock,
    format_duration,
    format_limited,
    format_percent,
    format_time,
)

_LONGEST_LINE = 400
_MANY = 64


def write_text(snapshot: Snapshot, zone: tzinfo | None = None) -> str:
    """Return a snapshot as text that ends with an empty line.

    Args:
        snapshot: The snapshot to format.
        zone: The time zone of the text; None means the machine's time zone.
    """
    sections = (
        _write_head(snapshot, zone),
        _write_memory(snapshot),
        _write_processes(snapshot),
        _write_accelerators(snapshot),
        _write_containers(snapshot, zone),
        _write_filesystems(snapshot),
        _write_kernel(snapshot, zone),
        _write_engine(snapshot),
        [f"not read   {trouble}" for trouble in snapshot.troubles],
    )
    lines = [clean_text(line, most=_LONGEST_LINE) for section in sections for line in section]
    return "\n".join(lines) + "\n\n"


def write_end(now: float, written: int, zone: tzinfo | None = None) -> str:
    """Return the last line of a recording that ended normally."""
    return f"=== {format_time(now, zone)} | the recording ends, snapshots: {written} ===\n"


def _write_head(snapshot: Snapshot, zone: tzinfo | None) -> Iterable[str]:
    head = (
        f"=== {format_time(snapshot.time, zone)} | {snapshot.hostname} | snapshot {snapshot.number}"
    )
    yield f"{head} | {format_duration(snapshot.seconds)} ==="
    if snapshot.skipped:
        yield f"skipped    {snapshot.skipped} snapshots, because one took longer than the interval"
    if snapshot.unwritten:
        yield f"unwritten  {snapshot.unwritten} snapshots before this one"


def _write_memory(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.memory is not None:
        yield f"memory     {_describe_memory(snapshot.memory)}"
        yield f"swap       {_describe_swap(snapshot.memory)}"
    if snapshot.cpu is not None:
        cpu = snapshot.cpu
        busy = format_percent(
            None if cpu.utilization_percent is None else cpu.utilization_percent / 100
        )
        waits = format_percent(cpu.io_wait_ratio)
        loads = [f"{each:.2f}" for each in (cpu.load1, cpu.load5, cpu.load15) if each is not None]
        load = f"load {' '.join(loads)}, " if loads else ""
        yield f"cpu        {busy} busy, {waits} waiting for I/O, {load}{cpu.logical} cores"


def _describe_memory(memory: MemoryReading) -> str:
    used, total = format_bytes(memory.used_bytes), format_bytes(memory.total_bytes)
    percent = _share(memory.used_bytes, memory.total_bytes)
    rest = f"{format_bytes(memory.available_bytes)} available, {format_bytes(memory.shared_bytes)} shared"
    return f"{used} of {total} used ({percent}), {rest}"


def _describe_swap(memory: MemoryReading) -> str:
    size = memory.swap_total_bytes
    if size == 0:
        return "none"
    return f"{_share(memory.swap_used_bytes, size)} of {format_bytes(size)} used"


def _write_processes(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.processes is None:
        return
    count = snapshot.processes.count
    hidden = f"{UNKNOWN} (/proc hides those of other users)"
    yield f"processes  {hidden if count is None else count}"
    head = ("", "PID", "USER", "CPU%", "RSS", "NAME")
    rows: list[tuple[str, ...]] = [head]
    for title, processes in (
        ("by cpu", snapshot.processes.by_cpu),
        ("by memory", snapshot.processes.by_memory),
    ):
        rows += [_describe_process(title, process) for process in processes]
    yield from _tabulate(rows)


def _describe_process(title: str, process: Process) -> tuple[str, ...]:
    cpu = UNKNOWN if process.cpu_percent is None else f"{process.cpu_percent:.1f}"
    size = format_bytes(process.resident_bytes)
    return (title, str(process.pid), process.user or UNKNOWN, cpu, size, process.name)


def _write_accelerators(snapshot: Snapshot) -> Iterable[str]:
    reading = snapshot.accelerators
    if reading is None:
        return
    if not reading.devices:
        yield "accelerators  none"
        return
    yield f"accelerators  {len(reading.devices)}"
    head = ("DEVICE", "STATE", "UTIL", "MEMORY", "TEMP", "POWER", "MODEL", "UUID")
    yield from _tabulate([head, *[_describe_device(device) for device in reading.devices]])
    names = {
        device.identity.uuid: f"{device.identity.kind} {device.identity.index}"
        for device in reading.devices
    }
    for holder in snapshot.holders:
        yield f"  {names[holder.uuid]}: {_describe_holder(holder)}"


def _describe_device(device: AcceleratorReading) -> tuple[str, ...]:
    identity, values = device.identity, device.measurements
    name = f"{identity.kind} {identity.index}"
    figures = (UNKNOWN,) * 4
    if values is not None:
        figures = (
            format_percent(values.utilization_ratio),
            format_bytes_of(values.memory_used_bytes, values.memory_total_bytes),
            format_limited(values.temperature_core_celsius, None, "°C"),
            format_limited(values.power_watts, None, "W"),
        )
    return (name, device.state, *figures, identity.model, identity.uuid)


def _describe_holder(holder: Holder) -> str:
    where = "" if holder.container is None else f", container {holder.container}"
    return (
        f"{format_bytes(holder.used_bytes)} held by {holder.name or '?'} (pid {holder.pid}{where})"
    )


def _write_containers(snapshot: Snapshot, zone: tzinfo | None) -> Iterable[str]:
    reading = snapshot.containers
    if reading is None:
        return
    yield f"containers  {len(reading.containers)}"
    if not reading.containers:
        return
    shares = dict(snapshot.cpu_percents)
    head = (
        "NAME",
        "STATE",
        "HEALTH",
        "CPU%",
        "MEMORY",
        "LIMIT",
        "RESTARTS",
        "DEATHS",
        "OOM",
        "LAST",
        "ID",
    )
    rows = [_describe_container(one, shares.get(one.name)) for one in reading.containers]
    yield from _tabulate([head, *rows])
    for one in reading.containers:
        if one.last_death is not None and one.name in snapshot.new_deaths:
            yield f"  {one.name}: {_describe_death(one.last_death, snapshot.time, zone)}"
    if reading.omitted:
        yield f"  {reading.omitted} more containers are left out"
    if reading.complaint:
        yield f"  {reading.complaint}"


def _describe_container(one: ContainerReading, share: float | None) -> tuple[str, ...]:
    memory = limit = UNKNOWN
    if one.usage is not None:
        # The working set excludes the page cache, which the kernel can drop before an OOM kill.
        used = one.usage.memory_working_set_bytes
        memory = format_bytes(used)
        most = one.usage.memory_limit_bytes
        if most is not None:
            limit = format_bytes(most) if most else "none"
        if used is not None and most:
            memory += f" ({_share(used, most)})"
    return (
        one.name,
        one.status or UNKNOWN,
        one.health or UNKNOWN,
        UNKNOWN if share is None else f"{share:.1f}",
        memory,
        limit,
        UNKNOWN if one.restarts is None else str(one.restarts),
        str(sum(one.deaths.values())),
        str(max(one.oom_kills.values(), default=0)),
        UNKNOWN if one.last_death is None else one.last_death.reason,
        one.id[:12],
    )


def _describe_death(death: Death, now: float, zone: tzinfo | None) -> str:
    code = "?" if death.exit_code is None else str(death.exit_code)
    when = format_clock(death.time, now, zone)
    words = f"died at {when} with exit code {code}: {death.reason} ({death.confidence} confidence)"
    return f"{words}. {death.summary}" if death.summary else words


def _write_filesystems(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.filesystems is None:
        return
    yield "disks"
    head = ("MOUNT", "USED", "AVAILABLE", "SIZE", "INODES", "", "DEVICE")
    yield from _tabulate(
        [head, *[_describe_filesystem(one) for one in snapshot.filesystems.filesystems]]
    )


def _describe_filesystem(one: Filesystem) -> tuple[str, ...]:
    space = one.space
    if space is None:
        trouble = one.trouble or "not permitted"
        return (one.mountpoint, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, trouble, one.device)
    inodes = UNKNOWN
    if space.files and space.files_free is not None:
        inodes = _share(space.files - space.files_free, space.files)
    return (
        one.mountpoint,
        _share(space.size_bytes - space.avail_bytes, space.size_bytes),
        format_bytes(space.avail_bytes),
        format_bytes(space.size_bytes),
        inodes,
        "read-only" if space.readonly else "",
        one.device,
    )


def _write_kernel(snapshot: Snapshot, zone: tzinfo | None) -> Iterable[str]:
    if snapshot.oom_kills is not None:
        yield f"oom kills  {snapshot.oom_kills} since the last snapshot"
    if snapshot.kernel is not None:
        for line in _list_kernel(snapshot.kernel, snapshot.time, zone):
            yield f"  {line}"


def _list_kernel(kernel: Kernel, now: float, zone: tzinfo | None) -> Iterable[str]:
    for kill in kernel.oom_kills[-_MANY:]:
        held = "" if kill.anon_rss_bytes is None else f", held {format_bytes(kill.anon_rss_bytes)}"
        when = format_clock(kill.time, now, zone)
        yield f"{when} killed {kill.task} (pid {kill.pid}{held}): {kill.constraint} {kill.task_memcg}"
    for xid in kernel.xids[-_MANY:]:
        yield f"{format_clock(xid.time, now, zone)} Xid {xid.code} of {xid.bus_id} {xid.text}"
    for line in kernel.lines[-_MANY:]:
        yield f"{format_clock(line.time, now, zone)} {line.text}"
    if kernel.lost:
        yield f"{kernel.lost} lines of the kernel log were overwritten before they were read"


def _write_engine(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.engine_errors is not None:
        yield f"engine     {'nothing new' if not snapshot.engine_errors else 'logged:'}"
        for line in snapshot.engine_errors:
            yield f"  {line}"


def _share(part: float | None, whole: float | None) -> str:
    if part is None or whole is None:
        return UNKNOWN
    return format_percent(part / whole if whole else 0.0)


def _tabulate(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Yield the rows in aligned columns; yield nothing if there are no rows below the head."""
    if len(rows) < 2:  # noqa: PLR2004 - a header alone
        return
    plain = [tuple(clean_text(cell, most=_LONGEST_LINE) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    for row in plain:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width]
        yield f"  {'  '.join(cells)}".rstrip()
