"""The resource usage of the exporter and its child processes, read from `/proc`."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, not_understood

# Columns of `/proc/PID/stat`, counted after the name and the state. The name is skipped, because it
# may contain spaces and brackets.
_UTIME = 10
_STIME = 11
_THREADS = 16
_START_TIME = 18
_VIRTUAL_BYTES = 19
_RESIDENT_PAGES = 20
_COLUMNS = 21
_MOST = 1 << 64


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The total resource usage of the exporter's process and its children.

    Attributes:
        cpu_seconds: The CPU time of the exporter and its children, including children that have
            ended, so the value never decreases.
        resident_bytes: The resident memory of the exporter and its children. A page that several
            processes share is counted for each process.
        virtual_bytes: The total size of the processes' address spaces.
        start_time_seconds: The time at which the exporter started, in seconds since 1970; None if
            the system does not report its boot time.
        open_fds: The number of the processes' open file descriptors; None if this user is not
            permitted to count a child's file descriptors.
        max_fds: The exporter's soft limit on open files, multiplied by the number of processes;
            None if there is no limit.
        threads: The number of threads of the exporter and its children.
    """

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    start_time_seconds: float | None
    open_fds: int | None
    max_fds: int | None
    threads: int


@dataclass(frozen=True, slots=True)
class _Stat:
    started_ticks: int
    cpu_ticks: int
    resident_pages: int
    virtual_bytes: int
    threads: int


class ProcessSource:
    """Reads the resource usage of the exporter and its child processes.

    Args:
        procfs: The path of the exporter's own `/proc`; in a container, this is not the host's
            `/proc`.
        children: A function that returns the PIDs of the child processes that count as part of the
            exporter.
        ticks_per_second: The number of clock ticks per second; CPU and start times in `/proc` are
            in ticks.
        page_bytes: The page size; `/proc` counts memory in pages.
    """

    def __init__(
        self,
        *,
        procfs: Path = Path("/proc"),
        children: Callable[[], Sequence[int]] = lambda: (),
        ticks_per_second: int = os.sysconf("SC_CLK_TCK"),
        page_bytes: int = os.sysconf("SC_PAGE_SIZE"),
    ) -> None:
        self._procfs = procfs
        self._children = children
        self._ticks_per_second = ticks_per_second
        self._page_bytes = page_bytes
        self._own = KeptFile(procfs / "self/stat", single=True)
        self._own_fd = procfs / "self/fd"
        self._files: dict[int, KeptFile] = {}
        self._seen: dict[int, _Stat] = {}
        self._ended_ticks = 0
        self._start_time: float | None = None
        self._stat_counts_fds = False

    def read(self) -> ProcessReading:
        """Read the current resource usage; children that no longer exist are skipped.

        Raises:
            SourceError: `/proc/self/stat` or a child's file cannot be read or parsed, or the
                exporter's file descriptors cannot be listed.
        """
        own = _parse(self._own.require(), self._own.path)
        children = self._read_children()
        everyone = [own, *children.values()]
        if self._start_time is None:
            self._start_time = self._read_start_time(own)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        cpu_ticks = sum([one.cpu_ticks for one in everyone]) + self._ended_ticks
        return ProcessReading(
            cpu_seconds=cpu_ticks / self._ticks_per_second,
            resident_bytes=sum([one.resident_pages for one in everyone]) * self._page_bytes,
            virtual_bytes=sum([one.virtual_bytes for one in everyone]),
            start_time_seconds=self._start_time,
            open_fds=self._count_fds(children),
            max_fds=None if limit == resource.RLIM_INFINITY else limit * len(everyone),
            threads=sum([one.threads for one in everyone]),
        )

    def close(self) -> None:
        """Close the source's open files in `/proc`."""
        self._own.close()
        for file in self._files.values():
            file.close()
        self._files = {}

    def _read_children(self) -> dict[int, _Stat]:
        pids = self._children()
        for pid in self._files.keys() - set(pids):
            self._files.pop(pid).close()
        alive: dict[int, _Stat] = {}
        for pid in pids:
            if pid not in self._files:
                self._files[pid] = KeptFile(self._procfs / str(pid) / "stat", single=True)
            file = self._files[pid]
            if (data := file.read()) is not None:
                alive[pid] = _parse(data, file.path)
        for pid, before in self._seen.items():
            now = alive.get(pid)
            if now is None or now.started_ticks != before.started_ticks:
                self._ended_ticks += before.cpu_ticks
        self._seen = alive
        return alive

    def _read_start_time(self, own: _Stat) -> float | None:
        file = KeptFile(self._procfs / "stat")
        data = file.read() or b""
        file.close()
        _, _, booted = data.partition(b"\nbtime ")
        try:
            boot_time = int(booted.partition(b"\n")[0])
            return boot_time + own.started_ticks / self._ticks_per_second
        except (ValueError, OverflowError):
            return None

    def _count_fds(self, children: dict[int, _Stat]) -> int | None:
        try:
            if self._stat_counts_fds:
                open_fds = self._own_fd.stat().st_size
            else:
                open_fds = _count_names(self._own_fd) - 1  # without the descriptor of the listing
                # Since Linux 6.2, the directory's size is the number of file descriptors.
                self._stat_counts_fds = self._own_fd.stat().st_size == open_fds
            for pid in children:
                open_fds += self._count_fds_of(self._procfs / str(pid) / "fd")
        except PermissionError:
            return None
        except OSError as error:
            raise SourceError(
                f"cannot list {self._own_fd}: {error.strerror}; mount a whole /proc"
            ) from error
        return open_fds

    def _count_fds_of(self, folder: Path) -> int:
        try:
            return folder.stat().st_size if self._stat_counts_fds else _count_names(folder)
        except (FileNotFoundError, ProcessLookupError):
            return 0


def _count_names(folder: Path) -> int:
    return len(os.listdir(folder))  # noqa: PTH208 - a path for each would be made for nothing


def _parse(data: bytes, path: Path) -> _Stat:
    try:
        columns = list(map(int, data.rpartition(b") ")[2].split(None, _COLUMNS + 1)[1:-1]))
    except ValueError as error:
        raise not_understood(path) from error
    if len(columns) < _COLUMNS or max(columns) > _MOST:
        raise not_understood(path)
    return _Stat(
        started_ticks=columns[_START_TIME],
        cpu_ticks=columns[_UTIME] + columns[_STIME],
        resident_pages=columns[_RESIDENT_PAGES],
        virtual_bytes=columns[_VIRTUAL_BYTES],
        threads=columns[_THREADS],
    )
