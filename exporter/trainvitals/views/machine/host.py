"""Derives the state of the host, without accelerators, from readings of the host collectors."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from trainvitals.sources.host.cpu import CpuReading
from trainvitals.sources.host.disk import DiskReading
from trainvitals.sources.host.filesystem import Filesystem as FilesystemRead
from trainvitals.sources.host.filesystem import FilesystemReading
from trainvitals.sources.host.kernel import KernelReading
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.network import NetworkReading
from trainvitals.sources.host.pressure import PressureReading
from trainvitals.verdicts.host import measure_memory
from trainvitals.verdicts.machine import take
from trainvitals.views.machine.counters import Counters
from trainvitals.views.machine.picture import TRACE_POINTS, TRACE_STEP_SECONDS, Filesystem, Host
from trainvitals.views.machine.traces import Traces

RECENT_SECONDS = TRACE_POINTS * TRACE_STEP_SECONDS
_MEMORY_SECONDS, _IO_SECONDS = 120.0, 600.0


class HostPast:
    """The host, with the recent history of its readings."""

    def __init__(self) -> None:
        self._traces = Traces()
        self._disk, self._network = Counters(), Counters()
        self._pressure = Counters(spacing_seconds=10.0, most=64)
        self._kills: deque[tuple[float, int]] = deque()
        self._kills_seen: int | None = None

    def note(self, readings: Mapping[str, object], time: float) -> None:
        """Add readings to the history; the keys of the mapping are collector names."""
        traces = self._traces
        traces.advance(time)
        if (cpu := take(readings, "cpu", CpuReading)) is not None:
            traces.add("cpu", cpu.utilization_percent)
            traces.add("io_wait", cpu.io_wait_ratio)
        if (memory := take(readings, "memory", MemoryReading)) is not None:
            traces.add("memory", measure_memory(memory))
            self._note_kills(memory.oom_kills, time)
        if (disk := take(readings, "disk", DiskReading)) is not None:
            self._disk.take(time, (disk.read_bytes, disk.written_bytes))
        if (network := take(readings, "network", NetworkReading)) is not None:
            self._network.take(time, (network.receive_bytes, network.transmit_bytes))
        if (pressure := take(readings, "pressure", PressureReading)) is not None:
            stalled = {each.resource: each.full_seconds for each in pressure.stalls}
            self._pressure.take(time, (stalled.get("memory"), stalled.get("io")))

    @property
    def recent_kills(self) -> int:
        """The number of OOM kills on the host in the past 15 minutes."""
        return sum(count for _, count in self._kills)

    def measure_memory_stalls(self) -> float | None:
        """Return the share of the past 2 minutes in which all tasks waited for memory.

        The result is None if the share is unknown.
        """
        return self._pressure.rate(0, _MEMORY_SECONDS)

    def measure_io_stalls(self) -> float | None:
        """Return the share of the past 10 minutes in which all tasks waited for disks.

        The result is None if the share is unknown.
        """
        return self._pressure.rate(1, _IO_SECONDS)

    def measure_io_wait(self) -> float | None:
        """Return the share of the past 10 minutes in which CPUs waited for disks.

        The result is None if the share is unknown.
        """
        trace = self._traces.read("io_wait")[-round(_IO_SECONDS / TRACE_STEP_SECONDS) :]
        known = [point for point in trace if point is not None]
        return sum(known) / len(known) if known else None

    def _note_kills(self, count: int | None, time: float) -> None:
        if count is None:
            return
        if self._kills_seen is not None and count > self._kills_seen:
            self._kills.append((time, count - self._kills_seen))
        self._kills_seen = count
        while self._kills and time - self._kills[0][0] > RECENT_SECONDS:
            self._kills.popleft()

    def draw(self, readings: Mapping[str, object]) -> Host:
        """Return the state of the host at the last reading."""
        cpu = take(readings, "cpu", CpuReading)
        memory = take(readings, "memory", MemoryReading)
        kernel = take(readings, "kernel", KernelReading)
        has_disk = take(readings, "disk", DiskReading) is not None
        has_network = take(readings, "network", NetworkReading) is not None
        return Host(
            cpu_percent=cpu.utilization_percent if cpu else None,
            cores=cpu.logical if cpu else None,
            io_wait_ratio=cpu.io_wait_ratio if cpu else None,
            load=_list_load(cpu),
            memory_total_bytes=memory.total_bytes if memory else None,
            memory_available_bytes=memory.available_bytes if memory else None,
            swap_total_bytes=memory.swap_total_bytes if memory else None,
            swap_free_bytes=memory.swap_free_bytes if memory else None,
            oom_kills=memory.oom_kills if memory else None,
            recent_oom_kills=self.recent_kills,
            disk_read_bytes_per_second=self._disk.rate(0) if has_disk else None,
            disk_written_bytes_per_second=self._disk.rate(1) if has_disk else None,
            received_bytes_per_second=self._network.rate(0) if has_network else None,
            transmitted_bytes_per_second=self._network.rate(1) if has_network else None,
            filesystems=_draw_filesystems(take(readings, "filesystem", FilesystemReading)),
            cpu_trace=self._traces.read("cpu"),
            memory_trace=self._traces.read("memory"),
            booted=float(kernel.boot_time_seconds) if kernel else None,
        )


def _list_load(cpu: CpuReading | None) -> tuple[float, ...]:
    load = (cpu.load1, cpu.load5, cpu.load15) if cpu else ()
    return tuple(each for each in load if each is not None)


def _draw_filesystems(reading: FilesystemReading | None) -> tuple[Filesystem, ...]:
    """Return the file systems, the fullest first; unresponsive file systems precede all others."""
    if reading is None:
        return ()
    drawn = [_draw_filesystem(each) for each in reading.filesystems]
    return tuple(sorted(drawn, key=_share_available))


def _draw_filesystem(read: FilesystemRead) -> Filesystem:
    space = read.space
    if space is None:
        return Filesystem(read.mountpoint, read.fstype, trouble=read.trouble or "")
    free = space.files_free / space.files if space.files and space.files_free is not None else None
    return Filesystem(
        mountpoint=read.mountpoint,
        fstype=read.fstype,
        size_bytes=space.size_bytes,
        avail_bytes=space.avail_bytes,
        files_free_ratio=free,
        is_readonly=space.readonly,
        trouble=read.trouble or "",
    )


def _share_available(drawn: Filesystem) -> float:
    if drawn.size_bytes is None:
        return -1.0 if drawn.trouble else 2.0
    return (drawn.avail_bytes or 0) / drawn.size_bytes if drawn.size_bytes else 1.0
