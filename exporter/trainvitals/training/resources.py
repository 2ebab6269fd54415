"""CPU, memory, disk and network use of a training process and its machine.

The names of the values are those of the CSV columns of the resource log. All values of the process
include its descendants, such as data loader workers. The functions do not block, because every rate
is the mean since the previous reading. Values that a system does not report are missing from the
results: process I/O on macOS, and pressure on systems other than Linux.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psutil import Process

_MIB = 1 << 20
_LOOPBACK = re.compile(r"lo\d*$|Loopback")


class HostSampler:
    """A sampler of the resources of the machine and of this process tree, which uses psutil.

    The rates in the first reading are means since the sampler was created.

    Args:
        clock: A function that returns the time of a monotonic clock, in seconds.
        procfs: The path at which procfs is mounted.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, procfs: Path = Path("/proc")
    ) -> None:
        self._clock = clock
        self._pressure_path = procfs / "pressure" / "io"
        self._tree = ProcessTree(clock=clock)
        self._machine_cpu = _read_machine_cpu()
        self._process_cpu = (clock(), self._tree.read().cpu_seconds)
        self._io = self._read_io()

    def read_cpu_memory(self) -> dict[str, float]:
        """Return the current use of CPU and memory.

        Returns:
            `cpu_percent` of the whole machine; `cpu_process_percent` of the process tree, where 100
            is one fully used core; `memory_system_mb`, `memory_available_mb` and `memory_percent`
            (in use) of the machine; `memory_process_mb`, the resident memory of the process tree.
        """
        import psutil  # noqa: PLC0415 - the training client imports the standard library only

        memory = psutil.virtual_memory()
        tree = self._tree.read()
        return self._read_cpu(tree) | {
            "memory_system_mb": memory.total / _MIB,
            "memory_available_mb": memory.available / _MIB,
            "memory_percent": float(memory.percent),
            "memory_process_mb": tree.resident_bytes / _MIB,
        }

    def read_io(self) -> dict[str, float]:
        """Return the use of disk and network since the previous reading.

        Returns:
            `disk_read_mb` and `disk_write_mb` of the process tree since the previous reading, and
            the corresponding rates `io_read_rate_mbps` and `io_write_rate_mbps` in MB/s;
            `net_sent_mbps` and `net_recv_mbps` of the machine without its loopback interface, in
            MB/s; `io_pressure_pct`, the share of time in which any task of the machine waited for
            I/O, in percent. 1 MB is 2**20 bytes.
        """
        before, now = self._io, self._read_io()
        self._io = now
        seconds = now["seconds"] - before["seconds"]
        grown = {name: now[name] - before[name] for name in now.keys() & before.keys()}
        values: dict[str, float] = {}
        for name, amount, rate in (
            ("read_bytes", "disk_read_mb", "io_read_rate_mbps"),
            ("write_bytes", "disk_write_mb", "io_write_rate_mbps"),
            ("sent_bytes", None, "net_sent_mbps"),
            ("received_bytes", None, "net_recv_mbps"),
        ):
            if name in grown:
                megabytes = max(grown[name], 0.0) / _MIB
                if amount is not None:
                    values[amount] = megabytes
                if seconds > 0:
                    values[rate] = megabytes / seconds
        if "stalled_seconds" in grown and seconds > 0:
            values["io_pressure_pct"] = min(100 * max(grown["stalled_seconds"], 0.0) / seconds, 100)
        return values

    def _read_cpu(self, tree: TreeReading) -> dict[str, float]:
        values: dict[str, float] = {}
        (busy_before, total_before), (busy, total) = self._machine_cpu, _read_machine_cpu()
        if total > total_before:
            self._machine_cpu = (busy, total)
            share = (busy - busy_before) / (total - total_before)
            values["cpu_percent"] = 100 * min(max(share, 0.0), 1.0)
        else:  # the CPU times were read twice within one kernel tick
            values["cpu_percent"] = 0.0
        (at_before, seconds_before), now = self._process_cpu, self._clock()
        self._process_cpu = (now, tree.cpu_seconds)
        used = tree.cpu_seconds - seconds_before
        values["cpu_process_percent"] = 100 * used / (now - at_before) if now > at_before else 0.0
        return values

    def _read_io(self) -> dict[str, float]:
        values: dict[str, float] = {"seconds": self._clock()}
        tree = self._tree.read()
        if tree.read_bytes is not None and tree.write_bytes is not None:
            values["read_bytes"], values["write_bytes"] = tree.read_bytes, tree.write_bytes
        values.update(_read_network())
        stalled_seconds = _read_stalled_seconds(self._pressure_path)
        if stalled_seconds is not None:
            values["stalled_seconds"] = stalled_seconds
        return values


def _read_machine_cpu() -> tuple[float, float]:
    """Return the busy time and the total time of the machine's cores, in seconds."""
    import psutil  # noqa: PLC0415

    times = psutil.cpu_times()._asdict()
    for within_user in ("guest", "guest_nice"):
        times.pop(within_user, None)
    total = sum(times.values())
    return total - times["idle"] - times.get("iowait", 0.0), total


def _read_network() -> dict[str, float]:
    import psutil  # noqa: PLC0415

    try:
        devices = psutil.net_io_counters(pernic=True)
    except (OSError, RuntimeError):  # this system does not provide /proc/net
        return {}
    counted = [device for name, device in devices.items() if not _LOOPBACK.match(name)]
    return {
        "sent_bytes": float(sum(device.bytes_sent for device in counted)),
        "received_bytes": float(sum(device.bytes_recv for device in counted)),
    }


def _read_stalled_seconds(path: Path) -> float | None:
    """Return for how many seconds since boot any task waited for I/O; None if unknown.

    The time is read from the line `some` in /proc/pressure/io.
    """
    try:
        some = path.read_text(encoding="utf-8").partition("\n")[0]
        return int(some.rpartition("total=")[2]) / 1_000_000
    except (OSError, ValueError):
        return None


_LISTING_SECONDS = 5.0
_LISTING_SHARE = 500


@dataclass(frozen=True, slots=True)
class TreeReading:
    """The resources that a process tree has used so far.

    Attributes:
        cpu_seconds: The CPU time of all processes, including those that have ended; this value
            never decreases.
        resident_bytes: The resident memory of the running processes; a shared page is counted once
            per process.
        read_bytes: The number of bytes that all processes have read from storage; this value never
            decreases. None on a system that does not report process I/O, such as macOS.
        write_bytes: The number of bytes that all processes have written to storage; this value
            never decreases. None on a system that does not report process I/O.
    """

    cpu_seconds: float
    resident_bytes: int
    read_bytes: int | None
    write_bytes: int | None


@dataclass(slots=True)
class _Member:
    process: Process
    cpu_seconds: float = 0.0
    read_bytes: int | None = None
    write_bytes: int | None = None


class ProcessTree:
    """This process and its descendants, read with psutil.

    It takes longer to find the descendants than to read their resources, so they are searched for
    only every 5 s. If a search takes long, the interval is longer, so that searches take at most
    0.2 % of the time.

    Args:
        clock: A function that returns the time of a monotonic clock, in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        import psutil  # noqa: PLC0415 - the training client imports the standard library only

        self._clock = clock
        self._members = [_Member(psutil.Process())]
        self._listed_until = float("-inf")
        self._ended = TreeReading(0.0, 0, 0, 0)
        self._highest = TreeReading(0.0, 0, 0, 0)

    def read(self) -> TreeReading:
        """Return the resources that the process tree has used so far."""
        if self._clock() >= self._listed_until:
            self._list_members()
        resident_bytes = sum(self._read_member(member) for member in self._members)
        reads = [member.read_bytes for member in self._members]
        writes = [member.write_bytes for member in self._members]
        cpu_seconds = sum(member.cpu_seconds for member in self._members)
        # The counts of an ended child are missing until its parent has taken them over.
        self._highest = TreeReading(
            max(self._highest.cpu_seconds, self._ended.cpu_seconds + cpu_seconds),
            resident_bytes,
            _rise(self._highest.read_bytes, self._ended.read_bytes, reads),
            _rise(self._highest.write_bytes, self._ended.write_bytes, writes),
        )
        return self._highest

    def _list_members(self) -> None:
        started_at = self._clock()
        root = self._members[0]
        known = {member.process: member for member in self._members}
        children = _find_descendants(root.process)
        self._members = [root, *(known.get(child) or _Member(child) for child in children)]
        gone = known.keys() - {member.process for member in self._members}
        if sys.platform == "win32":  # elsewhere the parent takes over the counts
            self._keep([known[process] for process in gone])
        now = self._clock()
        self._listed_until = now + max(_LISTING_SECONDS, _LISTING_SHARE * (now - started_at))

    def _keep(self, gone: list[_Member]) -> None:
        self._ended = TreeReading(
            self._ended.cpu_seconds + sum(member.cpu_seconds for member in gone),
            0,
            (self._ended.read_bytes or 0) + sum(member.read_bytes or 0 for member in gone),
            (self._ended.write_bytes or 0) + sum(member.write_bytes or 0 for member in gone),
        )

    def _read_member(self, member: _Member) -> int:
        """Update the counts of a process, unless it is a zombie, and return its resident bytes."""
        import psutil  # noqa: PLC0415

        process = member.process
        try:
            times = process.cpu_times()
            resident = int(process.memory_info().rss)
        except (psutil.Error, OSError):
            if not process.is_running() and sys.platform != "win32":  # the parent took them over
                member.cpu_seconds, member.read_bytes, member.write_bytes = 0.0, 0, 0
            return 0
        ended_children = getattr(times, "children_user", 0.0) + getattr(
            times, "children_system", 0.0
        )
        member.cpu_seconds = times.user + times.system + ended_children
        _read_io(member)
        return resident


def _find_descendants(root: Process) -> list[Process]:
    import psutil  # noqa: PLC0415

    pids = _list_descendants(root.pid)
    try:
        if pids is None:
            return root.children(recursive=True)
    except psutil.Error:
        return []
    found = []
    for pid in pids:
        with suppress(psutil.Error):  # the process ended in the meantime
            found.append(psutil.Process(pid))
    return found


def _list_descendants(root: int, *, procfs: Path = Path("/proc")) -> list[int] | None:
    """Return the PIDs of a process's descendants; None if the kernel does not list child processes.

    psutil would search all processes of the machine, which can take longer than a training step on
    a large machine.
    """
    if not (procfs / f"{root}/task/{root}/children").exists():
        return None
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = _list_children(procfs / f"{waiting.pop()}/task")
        found += children
        waiting += children
    return found


def _list_children(tasks: Path) -> list[int]:
    """Return the PIDs of the children of a process; threads that have ended are skipped."""
    children: list[int] = []
    with suppress(OSError):
        for task in tasks.iterdir():
            with suppress(OSError):
                children += map(int, (task / "children").read_bytes().split())
    return children


def _read_io(member: _Member) -> None:
    import psutil  # noqa: PLC0415

    if not hasattr(member.process, "io_counters"):  # macOS
        return
    try:
        counters = member.process.io_counters()
    except (psutil.Error, OSError, RuntimeError):  # RuntimeError: the file of a zombie is empty
        return
    member.read_bytes, member.write_bytes = int(counters.read_bytes), int(counters.write_bytes)


def _rise(highest: int | None, ended: int | None, counts: list[int | None]) -> int | None:
    """Return the total of the processes' counts; None if no process could be read.

    The total includes ended processes and is never lower than the highest previous total.
    """
    known = [count for count in counts if count is not None]
    return max(highest or 0, (ended or 0) + sum(known)) if known else None
