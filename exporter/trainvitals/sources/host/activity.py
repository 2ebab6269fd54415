"""Read the activity of processes and related processes: CPU time, bytes read and wait channels.

All data is read from `/proc`. Files that this user is not permitted to read are skipped, so no
privileges are required. Rates are computed from two readings that are at least a second apart.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from trainvitals.sources.containers.cgroup_files import read_data
from trainvitals.sources.containers.cgroup_usage import find_pressure_ratio
from trainvitals.sources.containers.cgrouppaths import find_group
from trainvitals.sources.files import Roots
from trainvitals.sources.host.processes import ProcessStat, read_stat

_MOST_THREADS, _MOST_CHILDREN, _MOST_SIBLINGS = 64, 32, 16
_DEEPEST = 4
_SHORTEST_SECONDS = 1.0
_MOST_SEEN = 512
_MOST_BYTES = 1 << 16
_NANOSECONDS = 1e9
_UNINTERRUPTIBLE = "D"
_STUCK = frozenset("DZX")
_INIT, _KTHREADD = 1, 2
# The system call numbers of `ioctl`, which is the first, and of the calls that read from the file
# descriptor in their first argument.
_CALLS = {
    "x86_64": (b"16", b"0", b"17", b"19", b"45", b"47"),
    "aarch64": (b"29", b"63", b"67", b"65", b"207", b"212"),
}.get(platform.machine(), (b"",))
# The kinds of open files, by the prefix of the link target in `/proc/PID/fd`.
_KINDS = {
    "socket:": "socket",
    "pipe:": "pipe",
    "/dev/pts/": "terminal",
    "/dev/tty": "terminal",
    "/dev/console": "terminal",
    "/dev/nvidia": "device",
    "/dev/accel": "device",
}
_WORLD = (b"MASTER_ADDR=", b"MASTER_PORT=", b"WORLD_SIZE=")
# PyTorch sets this environment variable for the compile workers of `torch.compile`.
_COMPILE_WORKER = b"TORCH_WARM_POOL=0"


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of one process between two readings.

    Attributes:
        pid: The process ID.
        name: The process name, which the kernel truncates to 15 characters.
        letter: The state of the process's first thread, as a letter from `/proc/PID/stat`.
        parent_pid: The ID of the parent process.
        cores: The CPU time of all threads, plus the time for which the first thread waited for a
            CPU, per second; None at the first reading.
        bytes_per_second: The number of bytes that `read` and similar calls on any file returned to
            the process, per second; None at the first reading or if this user may not read the
            number.
        disk_bytes_per_second: The number of bytes that were read from block devices for the
            process, per second; None at the first reading or if this user may not read the number.
        wait: The kernel function in which the first thread waits. The value is empty if the thread
            does not wait or the function has no name, and None if this user may not read it.
        waits_on: The kind of file that the first thread waits to read from: `socket`, `pipe`,
            `terminal`, `device` or `file`; empty if the kind is unknown.
        is_compile_worker: Whether the process is a compile worker of `torch.compile`. The value is
            False if the process used no CPU time.
    """

    pid: int
    name: str
    letter: str
    parent_pid: int = 0
    cores: float | None = None
    bytes_per_second: float | None = None
    disk_bytes_per_second: float | None = None
    wait: str | None = None
    waits_on: str = ""
    is_compile_worker: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The activity of a process and of related processes.

    Attributes:
        pid: The process ID.
        own: The activity of the process; None if `/proc` does not list the process.
        was_seen: Whether `/proc` listed the process at this or an earlier reading.
        shows_all: Whether `/proc` lists every process on the machine.
        blocked: The kernel functions in which threads wait uninterruptibly. A function is an empty
            string if it has no name or this user may not read it.
        threads: The names of the process's threads.
        running: The number of threads that were running on a CPU or waiting for a CPU.
        world: The values of `MASTER_ADDR`, `MASTER_PORT` and `WORLD_SIZE` with which the process
            was started; empty if there are no other ranks or the environment was not read.
        workers: The activities of the process's descendants; at most 32.
        siblings: The activities of other processes with the same parent, name and `world`; at most
            16. A process in the state D, Z or X is included without a comparison of `world`.
        io_pressure_ratio: The fraction of the last 10 s in which at least one task in the process's
            control group waited for I/O; None if the fraction is unknown. If the control group has
            no such value, the fraction is for all tasks on the machine.
        cpu_pressure_ratio: The corresponding fraction for tasks that waited for a CPU; None if the
            fraction is unknown.
    """

    pid: int
    own: Activity | None = None
    was_seen: bool = False
    shows_all: bool = False
    blocked: tuple[str, ...] = ()
    threads: frozenset[str] = frozenset()
    running: int = 0
    world: tuple[str, ...] = ()
    workers: tuple[Activity, ...] = ()
    siblings: tuple[Activity, ...] = ()
    io_pressure_ratio: float | None = None
    cpu_pressure_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    time: float
    cpu_ticks: int
    delay_ns: int
    read_bytes: int | None
    disk_bytes: int | None


_Rates = tuple[float | None, float | None, float | None]


class ActivitySource:
    """Reads the activity of processes and related processes, and stores it for the next reading.

    Args:
        roots: The paths of `/proc` and `/sys`.
        clock: A function that returns a monotonic time in seconds.
        ticks_per_second: The number of clock ticks per second, which are the unit of CPU times in
            `/proc`.
    """

    def __init__(
        self,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        *,
        clock: Callable[[], float] = time.monotonic,
        ticks_per_second: int = os.sysconf("SC_CLK_TCK"),
    ) -> None:
        self._roots = roots
        self._procfs = str(roots.procfs)
        self._clock = clock
        self._ticks_per_second = ticks_per_second
        self._looks: dict[tuple[int, int], tuple[_Look, Activity]] = {}
        self._fresh: dict[tuple[int, int], tuple[_Look, Activity]] = {}
        self._seen: set[int] = set()

    def read(self, pids: Iterable[int]) -> Mapping[int, Surroundings]:
        """Return the activity of processes since the previous call, by PID."""
        self._fresh = {}
        kthreadd = read_stat(f"{self._procfs}/{_KTHREADD}/stat")
        shows_all = kthreadd is not None and kthreadd.name == "kthreadd"
        found = {pid: replace(self._read_surroundings(pid), shows_all=shows_all) for pid in pids}
        self._looks, self._fresh = self._fresh, {}
        if len(self._seen) > _MOST_SEEN:
            self._seen = {pid for pid, one in found.items() if one.was_seen}
        return found

    def _read_surroundings(self, pid: int) -> Surroundings:
        own = self._read(pid)
        if own is None:
            return Surroundings(pid, was_seen=pid in self._seen)
        self._seen.add(pid)
        threads = list(self._list_threads(pid))
        blocked = [one.pid for one in threads if one.letter == _UNINTERRUPTIBLE]
        world = () if blocked else self._read_world(own)
        io, cpu = self._read_pressure(pid)
        return Surroundings(
            pid=pid,
            own=own,
            was_seen=True,
            blocked=tuple(self._read_wait(f"{pid}/task/{tid}")[0] or "" for tid in blocked),
            threads=frozenset(one.name for one in threads),
            running=sum(one.letter == "R" for one in threads),
            world=world,
            workers=tuple(islice(self._read_descendants(pid), _MOST_CHILDREN)),
            siblings=() if blocked else tuple(self._read_siblings(own, world)),
            io_pressure_ratio=io,
            cpu_pressure_ratio=cpu,
        )

    def _read(self, pid: int) -> Activity | None:
        stat = read_stat(f"{self._procfs}/{pid}/stat")
        if stat is None:
            return None
        key = (pid, stat.start_ticks)
        if key in self._fresh:
            return self._fresh[key][1]
        now = self._look(stat)
        kept = self._looks.get(key)
        if kept is None:
            rates: _Rates = (None, None, None)
        elif now.time - kept[0].time < _SHORTEST_SECONDS:
            before = kept[1]
            rates = before.cores, before.bytes_per_second, before.disk_bytes_per_second
            now = kept[0]
        else:
            rates = self._compare(kept[0], now)
        wait, waits_on = self._read_wait(str(pid))
        activity = Activity(pid, stat.name, stat.letter, stat.parent_pid, *rates, wait, waits_on)
        self._fresh[key] = now, activity
        return activity

    def _look(self, stat: ProcessStat) -> _Look:
        folder = f"{self._procfs}/{stat.pid}"
        delays = (read_data(folder, "schedstat") or b"").split()
        lines = [line.partition(b": ") for line in (read_data(folder, "io") or b"").splitlines()]
        io = {name: number for name, _, number in lines}
        delay_ns = _parse(delays[1]) if len(delays) > 1 else None
        counts = _parse(io.get(b"rchar")), _parse(io.get(b"read_bytes"))
        return _Look(self._clock(), stat.ticks, delay_ns or 0, *counts)

    def _compare(self, before: _Look, now: _Look) -> _Rates:
        seconds = now.time - before.time
        ticks, delay_ns = now.cpu_ticks - before.cpu_ticks, now.delay_ns - before.delay_ns
        spent = ticks / self._ticks_per_second + delay_ns / _NANOSECONDS
        return (
            max(0.0, spent / seconds),
            _rate(before.read_bytes, now.read_bytes, seconds),
            _rate(before.disk_bytes, now.disk_bytes, seconds),
        )

    def _read_wait(self, folder: str) -> tuple[str | None, str]:
        """Return the kernel function in which a thread waits, and the kind of file it waits for.

        The kernel reports 0 if the function has no name or this user may not read it. In this case,
        the function is returned as `ioctl` if the thread is in that system call.
        """
        wait = (read_data(f"{self._procfs}/{folder}", "wchan") or b"0").decode(errors="replace")
        syscall = read_data(f"{self._procfs}/{folder}", "syscall")
        call, *arguments = (syscall or b"").split()[:2] or (b"",)
        if wait == "0":
            known = "ioctl" if call == _CALLS[0] else ""
            return (None if syscall is None else known), ""
        kind = self._find_kind(folder, arguments[0]) if arguments and call in _CALLS else ""
        return wait, kind

    def _find_kind(self, folder: str, descriptor: bytes) -> str:
        try:
            name = os.readlink(  # noqa: PTH115 - a name such as `pipe:[1]` is not a path
                f"{self._procfs}/{folder}/fd/{int(descriptor, 16)}"
            )
        except (OSError, ValueError):
            return ""
        return next((kind for start, kind in _KINDS.items() if name.startswith(start)), "file")

    def _list_threads(self, pid: int) -> Iterator[ProcessStat]:
        for tid in self._list(f"{pid}/task", _MOST_THREADS):
            stat = read_stat(f"{self._procfs}/{pid}/task/{tid}/stat")
            if stat is not None:
                yield stat

    def _read_descendants(self, pid: int, depth: int = 0) -> Iterator[Activity]:
        if depth == _DEEPEST:
            return
        for child in self._list_children(pid):
            activity = self._read(child)
            if activity is not None:
                # The environment is read only if the worker uses CPU time.
                is_compiler = bool(activity.cores) and _COMPILE_WORKER in self._read_environ(
                    activity
                )
                yield replace(activity, is_compile_worker=is_compiler)
                yield from self._read_descendants(child, depth + 1)

    def _list_children(self, pid: int) -> Iterator[int]:
        """Yield the PIDs of a process's children; none if the kernel does not list children."""
        for tid in self._list(f"{pid}/task", _MOST_THREADS):
            data = read_data(f"{self._procfs}/{pid}/task/{tid}", "children") or b""
            yield from map(int, islice(filter(bytes.isdigit, data.split()), _MOST_CHILDREN))

    def _read_siblings(self, own: Activity, world: tuple[str, ...]) -> Iterator[Activity]:
        if own.parent_pid <= _INIT:
            return
        for pid in islice(self._list_children(own.parent_pid), _MOST_SIBLINGS):
            sibling = None if pid == own.pid else self._read(pid)
            if sibling is None or sibling.name != own.name:
                continue
            if sibling.letter in _STUCK or self._read_world(sibling) == world:
                yield sibling

    def _read_world(self, one: Activity) -> tuple[str, ...]:
        """Return the value of `Surroundings.world` for a process."""
        entries = self._read_environ(one)
        values = [
            next((entry[len(key) :] for entry in entries if entry.startswith(key)), b"")
            for key in _WORLD
        ]
        is_alone = values[-1] in (b"", b"1")
        return () if is_alone else tuple(value.decode(errors="replace") for value in values)

    def _read_environ(self, one: Activity) -> Sequence[bytes]:
        """Return the environment with which a process was started; empty if it cannot be read.

        The environment is never included in a reading. The environment is not read if the process's
        memory may be locked, because the read would block.
        """
        if one.letter in _STUCK:
            return ()
        data = read_data(f"{self._procfs}/{one.pid}", "environ", comes_by_page=True) or b""
        return data[:_MOST_BYTES].split(b"\0")

    def _read_pressure(self, pid: int) -> tuple[float | None, float | None]:
        """Return the I/O and CPU pressure in a process's control group, or else on the machine."""
        group = find_group(pid, self._roots)
        folder = group.memory if group is not None and group.version > 1 else None
        texts = [
            read_data(folder, f"{name}.pressure") or read_data(f"{self._procfs}/pressure", name)
            for name in ("io", "cpu")
        ]
        io, cpu = (find_pressure_ratio((text or b"").partition(b"\n")[0]) for text in texts)
        return io, cpu

    def _list(self, folder: str, most: int) -> list[str]:
        try:
            with os.scandir(f"{self._procfs}/{folder}") as entries:
                return [entry.name for entry in islice(entries, most)]
        except OSError:
            return []


def _parse(digits: bytes | None) -> int | None:
    return int(digits) if digits and digits.isdigit() and len(digits) < 20 else None  # noqa: PLR2004


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None else max(0, now - before) / seconds
