"""A snapshot as text that a person reads and `grep` finds its way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo

from trainvitals.postmortem.quantities import write_bytes, write_clock, write_time
from trainvitals.record.snapshot import Holder, Kernel, Snapshot
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.containers.reading import ContainerReading, Death
from trainvitals.sources.filesystem import Filesystem
from trainvitals.sources.memory import MemoryReading
from trainvitals.sources.processes import Process

_UNKNOWN = "-"
_LONGEST_LINE = 400
_MANY = 64


def write_text(snapshot: Snapshot, zone: tzinfo | None = None) -> str:
    """Write a snapshot; an empty line ends it.

    Args:
        snapshot: What was seen.
        zone: The time zone of its times; the machine's when None.
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
    lines = [_make_harmless(line) for section in sections for line in section]
    return "\n".join(lines) + "\n\n"


def write_end(now: float, written: int, zone: tzinfo | None = None) -> str:
    """Write the last line of a recording that ended as it was told to."""
    return f"=== {write_time(now, zone)} | the recording ends, snapshots: {written} ===\n"


def _write_head(snapshot: Snapshot, zone: tzinfo | None) -> Iterable[str]:
    head = (
        f"=== {write_time(snapshot.time, zone)} | {snapshot.hostname} | snapshot {snapshot.number}"
    )
    yield f"{head} | {snapshot.seconds:.2f} s ==="
    if snapshot.skipped:
        yield f"skipped    {snapshot.skipped} snapshots, because one took longer than the interval"
    if snapshot.unwritten:
        yield f"unwritten  {snapshot.unwritten} snapshots before this one"


def _write_memory(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.memory is not None:
        yield f"memory     {_describe_memory(snapshot.memory)}"
        swap = snapshot.memory
        size = write_bytes(swap.swap_total_bytes)
        used = _share(swap.swap_used_bytes, swap.swap_total_bytes)
        yield f"swap       {used} of {size} used" if swap.swap_total_bytes else "swap       none"
    if snapshot.cpu is not None:
        cpu = snapshot.cpu
        busy = "?" if cpu.utilization_percent is None else f"{cpu.utilization_percent:.0f} %"
        waits = "?" if cpu.io_wait_ratio is None else f"{100 * cpu.io_wait_ratio:.0f} %"
        load = f"load {cpu.load1:.2f} {cpu.load5:.2f} {cpu.load15:.2f}"
        yield f"cpu        {busy} busy, {waits} waiting for I/O, {load}, {cpu.logical} cores"


def _describe_memory(memory: MemoryReading) -> str:
    used, total = write_bytes(memory.used_bytes), write_bytes(memory.total_bytes)
    percent = _share(memory.used_bytes, memory.total_bytes)
    rest = f"{write_bytes(memory.available_bytes)} available, {write_bytes(memory.shared_bytes)} shared"
    return f"{used} of {total} used ({percent}), {rest}"


def _write_processes(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.processes is None:
        return
    yield f"processes  {snapshot.processes.count}"
    head = ("", "PID", "USER", "CPU%", "RSS", "NAME")
    rows: list[tuple[str, ...]] = [head]
    for title, processes in (
        ("by cpu", snapshot.processes.by_cpu),
        ("by memory", snapshot.processes.by_memory),
    ):
        rows += [_describe_process(title, process) for process in processes]
    yield from _tabulate(rows)


def _describe_process(title: str, process: Process) -> tuple[str, ...]:
    cpu = _UNKNOWN if process.cpu_percent is None else f"{process.cpu_percent:.1f}"
    size = write_bytes(process.resident_bytes)
    return (title, str(process.pid), process.user or _UNKNOWN, cpu, size, process.name)


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
    utilization = memory = temperature = power = _UNKNOWN
    if values is not None:
        if values.utilization_ratio is not None:
            utilization = f"{100 * values.utilization_ratio:.0f}%"
        if values.memory_used_bytes is not None and values.memory_total_bytes is not None:
            total = write_bytes(values.memory_total_bytes)
            memory = f"{write_bytes(values.memory_used_bytes)} of {total}"
        if values.temperature_core_celsius is not None:
            temperature = f"{values.temperature_core_celsius:.0f} C"
        if values.power_watts is not None:
            power = f"{values.power_watts:.0f} W"
    name = f"{identity.kind} {identity.index}"
    return (
        name,
        device.state,
        utilization,
        memory,
        temperature,
        power,
        identity.model,
        identity.uuid,
    )


def _describe_holder(holder: Holder) -> str:
    where = "" if holder.container is None else f", container {holder.container}"
    return (
        f"{write_bytes(holder.used_bytes)} held by {holder.name or '?'} (pid {holder.pid}{where})"
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
    memory = limit = _UNKNOWN
    if one.usage is not None:
        # What counts before the kernel kills, not what it could drop.
        used = one.usage.memory_working_set_bytes
        memory = _UNKNOWN if used is None else write_bytes(used)
        most = one.usage.memory_limit_bytes
        if most is not None:
            limit = f"{write_bytes(most)}" if most else "none"
        if used is not None and most:
            memory += f" ({_share(used, most)})"
    return (
        one.name,
        one.status or _UNKNOWN,
        one.health or _UNKNOWN,
        _UNKNOWN if share is None else f"{share:.1f}",
        memory,
        limit,
        _UNKNOWN if one.restarts is None else str(one.restarts),
        str(sum(one.deaths.values())),
        str(max(one.oom_kills.values(), default=0)),
        _UNKNOWN if one.last_death is None else one.last_death.reason,
        one.id[:12],
    )


def _describe_death(death: Death, now: float, zone: tzinfo | None) -> str:
    code = "?" if death.exit_code is None else str(death.exit_code)
    when = write_clock(death.time, now, zone)
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
        return (one.mountpoint, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN, trouble, one.device)
    inodes = _UNKNOWN
    if space.files and space.files_free is not None:
        inodes = _share(space.files - space.files_free, space.files)
    return (
        one.mountpoint,
        _share(space.size_bytes - space.avail_bytes, space.size_bytes),
        write_bytes(space.avail_bytes),
        write_bytes(space.size_bytes),
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
        held = "" if kill.anon_rss_bytes is None else f", held {write_bytes(kill.anon_rss_bytes)}"
        when = write_clock(kill.time, now, zone)
        yield f"{when} killed {kill.task} (pid {kill.pid}{held}): {kill.constraint} {kill.task_memcg}"
    for xid in kernel.xids[-_MANY:]:
        yield f"{write_clock(xid.time, now, zone)} Xid {xid.code} of {xid.bus_id} {xid.text}"
    for line in kernel.lines[-_MANY:]:
        yield f"{write_clock(line.time, now, zone)} {line.text}"
    if kernel.lost:
        yield f"{kernel.lost} lines of the kernel log were overwritten before they were read"


def _write_engine(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.engine_errors is not None:
        yield f"engine     {'nothing new' if not snapshot.engine_errors else 'logged:'}"
        for line in snapshot.engine_errors:
            yield f"  {line}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "0%"


def _tabulate(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Write rows in columns, each as wide as its widest; the last one as it is."""
    if len(rows) < 2:  # noqa: PLR2004 - a head alone
        return
    plain = [tuple(_make_harmless(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    for row in plain:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width]
        yield f"  {'  '.join(cells)}".rstrip()


def _make_harmless(line: str) -> str:
    """Take out what would begin another line, move the cursor or colour, and cut what is long."""
    plain = line
    if not line.isprintable():
        plain = "".join(letter if letter.isprintable() else "?" for letter in line)
    return plain if len(plain) <= _LONGEST_LINE else f"{plain[:_LONGEST_LINE]}..."
