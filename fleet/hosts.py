"""Simulated hosts: the readings of `/proc` and `/sys` of a machine under varying load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleet.course import Course, Total, constant
from trainvitals.sources.host.cpu import MODES, CpuReading
from trainvitals.sources.host.disk import Disk, DiskReading
from trainvitals.sources.host.filesystem import Filesystem, FilesystemReading, Space
from trainvitals.sources.host.frequency import Frequencies
from trainvitals.sources.host.kernel import ClockState, KernelReading
from trainvitals.sources.host.kernel_log import CONSTRAINTS, KernelTallyReading, XidCount
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.network import Interface, NetworkReading
from trainvitals.sources.host.pressure import PressureReading, Stall
from trainvitals.sources.host.process import ProcessReading

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
_REQUEST_BYTES = 256 << 10
_PACKET_BYTES = 1400
_INODE_BYTES = 16 << 10
_SCRAPE_CPU_SECONDS, _SCRAPE_EVERY_SECONDS = 0.006, 15
# The distribution of the busy time over modes.
_MODES = {"user": 0.82, "nice": 0.02, "system": 0.13, "softirq": 0.03}


@dataclass(frozen=True, slots=True)
class Volume:
    """A file system.

    Attributes:
        mountpoint: The mount point.
        device: The mounted device.
        fstype: The type of the file system.
        size_bytes: The size in bytes.
        used_bytes: The number of bytes in use.
        trouble: The reason why the file system cannot be queried; None while it responds.
    """

    mountpoint: str
    device: str
    fstype: str
    size_bytes: int
    used_bytes: Course
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """The activity of a host; rates are per second.

    Attributes:
        cores: The number of cores, including hyper-threads.
        memory_bytes: The size of the memory.
        busy: The share of the cores that is busy.
        io_wait: The share of the cores that is idle and waits for I/O.
        used_bytes: The memory used by programs.
        cached_bytes: The memory used by the page cache.
        read_bytes: The bytes read from the disk per second.
        written_bytes: The bytes written to the disk per second.
        received_bytes: The bytes received over the network per second.
        sent_bytes: The bytes sent over the network per second.
        io_stalled: The share of the time in which all tasks wait for I/O.
        cpu_stalled: The share of the time in which some task waits for a core.
        memory_stalled: The share of the time in which all tasks wait for memory.
        volumes: The file systems.
        oom_kills: The number of processes killed by the kernel because memory was exhausted.
        clock_ahead_seconds: The number of seconds by which the clock is fast.
        xids: Xid errors from the kernel log: the GPU's address, the code and the times.
    """

    cores: int
    memory_bytes: int
    busy: Course
    used_bytes: Course
    volumes: tuple[Volume, ...]
    io_wait: Course = field(default=constant(0.004))
    cached_bytes: Course = field(default=constant(24 * GIB))
    read_bytes: Course = field(default=constant(1e6))
    written_bytes: Course = field(default=constant(2e6))
    received_bytes: Course = field(default=constant(4e5))
    sent_bytes: Course = field(default=constant(2e5))
    io_stalled: Course = field(default=constant(0.001))
    cpu_stalled: Course = field(default=constant(0.005))
    memory_stalled: Course = field(default=constant(0.0))
    oom_kills: Callable[[float], int] = lambda _: 0
    clock_ahead_seconds: float = 0.000125
    xids: tuple[tuple[str, int, tuple[float, ...]], ...] = ()


@dataclass(slots=True)
class Host:
    """A simulated host.

    Attributes:
        life: The activity of the host.
        start: The time at which the exporter and its counters start, in Unix seconds.
        booted: The boot time in Unix seconds.
    """

    life: Life
    start: float
    booted: float
    _totals: dict[str, Total] = field(init=False)

    def __post_init__(self) -> None:
        life = self.life
        rates: dict[str, Course] = {
            "busy": lambda now: life.cores * min(1.0, max(0.0, life.busy(now))),
            "io_wait": lambda now: life.cores * life.io_wait(now),
            "read": life.read_bytes,
            "written": life.written_bytes,
            "received": life.received_bytes,
            "sent": life.sent_bytes,
            "disk_busy": self._use_disk,
            "io_stalled": life.io_stalled,
            "cpu_stalled": life.cpu_stalled,
            "memory_stalled": life.memory_stalled,
        }
        self._totals = {name: Total(rate, self.start) for name, rate in rates.items()}

    def readers(self) -> Mapping[str, Callable[[float], object]]:
        """Return the function that reads each part of the host, by the name of the collector."""
        return {
            "cpu": self._read_cpu,
            "memory": self._read_memory,
            "filesystem": self._read_filesystems,
            "disk": self._read_disks,
            "network": self._read_network,
            "pressure": self._read_pressure,
            "kernel": self._read_kernel,
            "process": self._read_process,
            "kernel_log": self._read_kernel_log,
        }

    def _sum(self, name: str, now: float) -> float:
        return self._totals[name].at(now)

    def _use_disk(self, now: float) -> float:
        life = self.life
        return min(1.0, (life.read_bytes(now) + life.written_bytes(now)) / 2.4e9)

    def _read_cpu(self, now: float) -> CpuReading:
        life, busy = self.life, self._sum("busy", now)
        io_wait = self._sum("io_wait", now)
        modes = dict.fromkeys(MODES, 0.0)
        modes.update({name: share * busy for name, share in _MODES.items()})
        modes["iowait"] = io_wait
        modes["idle"] = max(0.0, life.cores * (now - self.start) - busy - io_wait)
        waiting = life.cores * life.busy(now) + life.cores * life.io_wait(now)
        even = busy / life.cores
        return CpuReading(
            mode_seconds=tuple(round(seconds, 2) for seconds in modes.values()),
            cores=tuple(map(str, range(life.cores))),
            core_busy_seconds=tuple(
                round(even * (0.9 + 0.2 * (core % 7) / 6), 2) for core in range(life.cores)
            ),
            dropped=0,
            logical=life.cores,
            physical=life.cores // 2,
            utilization_percent=round(100 * life.busy(now), 2),
            io_wait_ratio=round(life.io_wait(now), 4),
            frequencies=Frequencies(2.6e9 + 0.8e9 * life.busy(now), 1_500_000_000, 3_700_000_000),
            load1=round(waiting, 2),
            load5=round((waiting + life.cores * life.busy(now - 150)) / 2, 2),
            load15=round((waiting + life.cores * life.busy(now - 450)) / 2, 2),
            processes_running=1 + int(life.cores * life.busy(now)),
            processes_blocked=int(life.cores * life.io_wait(now)),
        )

    def _read_memory(self, now: float) -> MemoryReading:
        life = self.life
        available = life.memory_bytes - int(life.used_bytes(now))
        cached = min(int(life.cached_bytes(now)), int(0.9 * available))
        return MemoryReading(
            total_bytes=life.memory_bytes,
            available_bytes=available,
            free_bytes=available - cached,
            buffers_bytes=256 * MIB,
            cached_bytes=cached,
            shared_bytes=int(0.03 * life.used_bytes(now)),
            dirty_bytes=int(2 * life.written_bytes(now)),
            swap_total_bytes=8 * GIB,
            swap_free_bytes=8 * GIB - 64 * MIB,
            swap_in_bytes=4 * MIB,
            swap_out_bytes=68 * MIB,
            oom_kills=life.oom_kills(now),
        )

    def _read_filesystems(self, now: float) -> FilesystemReading:
        return FilesystemReading(tuple(_look_at(volume, now) for volume in self.life.volumes), 0)

    def _read_disks(self, now: float) -> DiskReading:
        read, written = int(self._sum("read", now)), int(self._sum("written", now))
        busy = round(self._sum("disk_busy", now), 3)
        disk = Disk(
            device="nvme0n1",
            layered=False,
            reads_completed=read // _REQUEST_BYTES,
            read_bytes=read,
            read_seconds=round(read / _REQUEST_BYTES * 0.0004 + 2 * busy, 3),
            writes_completed=written // _REQUEST_BYTES,
            written_bytes=written,
            write_seconds=round(written / _REQUEST_BYTES * 0.0009 + busy, 3),
            io_now=int(24 * self._use_disk(now)),
            io_seconds=busy,
            io_weighted_seconds=round(5 * busy, 3),
        )
        return DiskReading((disk,), 0, read, written)

    def _read_network(self, now: float) -> NetworkReading:
        received, sent = int(self._sum("received", now)), int(self._sum("sent", now))
        interface = Interface(
            device="eth0",
            physical=True,
            receive_bytes=received,
            receive_packets=received // _PACKET_BYTES,
            receive_errors=0,
            receive_dropped=received // 10**12,
            transmit_bytes=sent,
            transmit_packets=sent // _PACKET_BYTES,
            transmit_errors=0,
            transmit_dropped=0,
            up=True,
            speed_bytes=12_500_000_000,
        )
        return NetworkReading((interface,), 0, received, sent)

    def _read_pressure(self, now: float) -> PressureReading:
        cpu, io, memory = (
            round(self._sum(f"{name}_stalled", now), 3) for name in ("cpu", "io", "memory")
        )
        return PressureReading(
            (
                Stall("cpu", cpu, None),
                Stall("io", round(1.4 * io, 3), io),
                Stall("memory", round(1.6 * memory, 3), memory),
            )
        )

    def _read_kernel(self, now: float) -> KernelReading:
        ahead = self.life.clock_ahead_seconds
        return KernelReading(int(self.booted), now + ahead, ClockState(-ahead, synchronized=True))

    def _read_process(self, now: float) -> ProcessReading:
        return ProcessReading(
            cpu_seconds=round(_SCRAPE_CPU_SECONDS / _SCRAPE_EVERY_SECONDS * (now - self.start), 2),
            resident_bytes=31 * MIB,
            virtual_bytes=180 * MIB,
            start_time_seconds=self.start,
            open_fds=21,
            max_fds=1024,
            threads=6,
        )

    def _read_kernel_log(self, now: float) -> KernelTallyReading:
        kills = dict.fromkeys(CONSTRAINTS.values(), 0)
        kills["memcg"] = self.life.oom_kills(now)
        xids = tuple(
            XidCount(bus_id, code, len(past), past[-1])
            for bus_id, code, moments in self.life.xids
            if (past := [moment for moment in moments if moment <= now])
        )
        return KernelTallyReading(kills, xids)


def _look_at(volume: Volume, now: float) -> Filesystem:
    if volume.trouble is not None:
        return Filesystem(
            volume.mountpoint,
            volume.device,
            volume.fstype,
            space=None,
            responding=False,
            trouble=volume.trouble,
        )
    avail = max(0, volume.size_bytes - int(volume.used_bytes(now)))
    files = volume.size_bytes // _INODE_BYTES
    space = Space(
        size_bytes=volume.size_bytes,
        avail_bytes=avail,
        files=files,
        files_free=int(files * (0.5 + 0.4 * avail / volume.size_bytes)),
        readonly=False,
    )
    is_remote = volume.fstype.startswith("nfs")
    return Filesystem(
        volume.mountpoint, volume.device, volume.fstype, space, True if is_remote else None, None
    )
