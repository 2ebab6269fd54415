"""The processes that use the most CPU and memory, read from `/proc/PID/stat`.

Command lines are never read, because they often contain secrets. A process is identified by its
name (`comm`), its user and its PID.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots

# Columns of `/proc/PID/stat`, counted after the name, which may contain spaces and brackets.
_STATE = 0
_PARENT = 1
_UTIME = 11
_STIME = 12
_START_TICKS = 19
_RESIDENT_PAGES = 21
_COLUMNS = 22
_STAT_BYTES = 4096
_FIRST = 1
_USER_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Process:
    """A process and its resource usage.

    Attributes:
        pid: The process ID.
        name: The process name, which the kernel truncates to 15 characters.
        user: The process's user name according to `/etc/passwd`, or the user ID if the file does
            not list the user; empty if the process has ended.
        cpu_percent: The CPU usage since the previous reading, where 100 is one full core; None at
            the first reading.
        resident_bytes: The process's resident memory. Memory that several processes share is
            counted for each process.
    """

    pid: int
    name: str
    user: str
    cpu_percent: float | None
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessesReading:
    """The processes that use the most CPU and memory.

    Attributes:
        count: The number of processes; None if other users' processes are hidden (hidepid). Hidden
            processes are also missing from the lists.
        by_cpu: The processes that used the most CPU time since the previous reading, the busiest
            first; empty at the first reading. Idle processes are omitted.
        by_memory: The processes with the most resident memory, the largest first.
    """

    count: int | None
    by_cpu: tuple[Process, ...]
    by_memory: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The values in the file `stat` of a process or thread in `/proc`.

    Attributes:
        pid: The ID of the process or thread.
        name: The process or thread name, which the kernel truncates to 15 characters.
        letter: The letter for the state, such as `R` for running or `D` for an uninterruptible
            wait.
        parent_pid: The ID of the parent process.
        ticks: The CPU time of the process or thread, in clock ticks.
        start_ticks: The start time of the process or thread, in clock ticks since boot.
        resident_pages: The resident memory in pages.
    """

    pid: int
    name: str
    letter: str
    parent_pid: int
    ticks: int
    start_ticks: int
    resident_pages: int


class ProcessesSource:
    """Reads the processes that use the most CPU and memory.

    Args:
        roots: The paths of `/proc` and the host's `/etc/passwd`.
        most: The maximum number of processes in each list.
        clock: A function that returns a monotonic time in seconds.
        ticks_per_second: The number of clock ticks per second; CPU times in `/proc` are in ticks.
        page_bytes: The page size; `/proc` counts memory in pages.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        most: int = 5,
        clock: Callable[[], float] = time.monotonic,
        ticks_per_second: int = os.sysconf("SC_CLK_TCK"),
        page_bytes: int = os.sysconf("SC_PAGE_SIZE"),
    ) -> None:
        self._procfs = roots.procfs
        self._passwd = KeptFile(roots.rootfs / "etc/passwd")
        self._most = most
        self._clock = clock
        self._ticks_per_second = ticks_per_second
        self._page_bytes = page_bytes
        self._seen: dict[tuple[int, int], int] = {}
        self._seen_at: float | None = None

    def read(self) -> ProcessesReading:
        """Read the processes' current resource usage.

        Raises:
            SourceError: The processes cannot be listed.
        """
        now = self._clock()
        stats = list(self._read_stats())
        spent = self._compare(stats)
        elapsed = None if self._seen_at is None else now - self._seen_at
        self._seen = {(one.pid, one.start_ticks): one.ticks for one in stats}
        self._seen_at = now
        largest = heapq.nlargest(self._most, stats, key=lambda one: one.resident_pages)
        busiest = heapq.nlargest(self._most, stats, key=lambda one: spent.get(one.pid, 0))
        users = self._read_users()

        def describe(one: ProcessStat) -> Process:
            share = spent.get(one.pid, 0) / self._ticks_per_second
            return Process(
                pid=one.pid,
                name=one.name,
                user=self._find_user(one.pid, users),
                cpu_percent=100 * share / elapsed if elapsed else None,
                resident_bytes=one.resident_pages * self._page_bytes,
            )

        return ProcessesReading(
            # If process 1 is not visible, other users' processes are hidden.
            count=len(stats) if any(one.pid == _FIRST for one in stats) else None,
            by_cpu=tuple(describe(one) for one in busiest if elapsed and spent.get(one.pid)),
            by_memory=tuple(describe(one) for one in largest if one.resident_pages),
        )

    def close(self) -> None:
        """Close `/etc/passwd`."""
        self._passwd.close()

    def _read_stats(self) -> Iterable[ProcessStat]:
        try:
            names = os.listdir(self._procfs)  # noqa: PTH208 - a path for each would be made for nothing
        except OSError as error:
            raise SourceError(
                f"cannot list {self._procfs}: {error.strerror}; check where --path.procfs points"
            ) from error
        for name in names:
            if name.isdecimal() and (stat := read_stat(f"{self._procfs}/{name}/stat")):
                yield stat

    def _compare(self, stats: Iterable[ProcessStat]) -> Mapping[int, int]:
        """Return each process's CPU ticks since the previous reading, by PID.

        The result is empty at the first reading.
        """
        if self._seen_at is None:
            return {}
        # A new process has used all of its CPU time since the previous reading. The CPU time of a
        # process sometimes decreases by a tick.
        return {
            one.pid: max(0, one.ticks - self._seen.get((one.pid, one.start_ticks), 0))
            for one in stats
        }

    def _read_users(self) -> Mapping[str, str]:
        # getpwuid is not used, because it may query a directory service that hangs.
        try:
            data = self._passwd.read() or b""
        except SourceError:  # user IDs are reported instead of user names
            return {}
        rows = [line.split(":", _USER_FIELDS) for line in data.decode(errors="replace").split("\n")]
        return {row[2]: row[0] for row in reversed(rows) if len(row) > _USER_FIELDS}

    def _find_user(self, pid: int, users: Mapping[str, str]) -> str:
        try:
            uid = str(Path(f"{self._procfs}/{pid}").stat().st_uid)
        except OSError:
            return ""
        return users.get(uid, uid)


def read_process_name(pid: int, roots: Roots = Roots()) -> str | None:  # noqa: B008 - immutable
    """Return a process's name; None if the process does not exist."""
    stat = read_stat(f"{roots.procfs}/{pid}/stat")
    return None if stat is None else stat.name


def read_stat(path: str) -> ProcessStat | None:
    """Read the `stat` file of a process or thread; return None if it is unreadable or invalid."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, _STAT_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return _parse_stat(data)


def _parse_stat(data: bytes) -> ProcessStat | None:
    head, _, rest = data.rpartition(b") ")
    pid, _, name = head.partition(b" (")
    columns = rest.split(None, _COLUMNS)
    if len(columns) < _COLUMNS:
        return None
    try:
        return ProcessStat(
            pid=int(pid),
            name=name.decode(errors="replace"),
            letter=columns[_STATE].decode(errors="replace"),
            parent_pid=int(columns[_PARENT]),
            ticks=int(columns[_UTIME]) + int(columns[_STIME]),
            start_ticks=int(columns[_START_TICKS]),
            resident_pages=int(columns[_RESIDENT_PAGES]),
        )
    except ValueError:
        return None
