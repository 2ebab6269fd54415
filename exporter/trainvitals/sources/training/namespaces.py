"""Run directories inside containers that share no volume with us, through `/proc/PID/root`.

Each container has a mount namespace of its own, and in it a run directory of its own. Who may look
into a process (root, or its own user) may walk from the root directory that the process sees.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.training.directory import DirectoryReading, Limits, RunDirectory
from trainvitals.sources.training.liveness import Host, read_host
from trainvitals.sources.training.rankfile import FileKey

_O_PATH = getattr(os, "O_PATH", 0)
_O_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_O_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_O_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_MOST_NAMESPACES = 256
# Who may make mount namespaces, which on most machines is everybody, may make many containers. What
# one of them may have is less than our own directory may, and all of them together have a bound.
_MOST_FILES, _LEAST_FILES = 256, 4
_LIMITS = Limits(files=64, names=1024, new=64)
_MOST_GONE = 64
# Where there is always something new, those that were not reached are first the next time.
_SEARCH_FILES_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """A run directory in another mount namespace.

    Attributes:
        path: Where it can be found while the process lives.
        descriptor: The open directory, which is the caller's to close.
        key: Which directory it is, under whatever name and in whatever namespace.
    """

    path: Path
    descriptor: int
    key: FileKey


def find_run_directories(
    path: Path, *, procfs: Path = Path("/proc"), most: int = 64
) -> tuple[FoundDirectory, ...]:
    """Find the run directories of all mount namespaces but our own, each once.

    What we may not look into is passed over. No symbolic link is followed inside, for it would
    lead to a place of our own namespace.

    Args:
        path: Where a run directory is in each namespace; absolute.
        procfs: Where processes are found; it must show those of the containers.
        most: How many directories to find at most.
    """
    known = {_read_key(path)}
    found: list[FoundDirectory] = []
    for pid in _one_process_of_each_namespace(procfs):
        root = procfs / str(pid) / "root"
        with contextlib.suppress(OSError):
            descriptor = _walk(root, path)
            status = os.fstat(descriptor)
            key = FileKey(status.st_dev, status.st_ino)
            if key in known or len(found) >= most:
                os.close(descriptor)
                continue
            known.add(key)
            found.append(FoundDirectory(root / path.relative_to("/"), descriptor, key))
    return tuple(found)


class ContainerDirectories:
    """Keeps the run directories of other mount namespaces between two readings.

    Args:
        path: Where a run directory is in each namespace; absolute.
        host: The machine; the one we run on when None.
        limits: How much of each directory is looked at; of many it is less.
        search_seconds: How often namespaces are searched, which costs some milliseconds.
        keep_seconds: How long the ranks of a container that is gone stay readable.
        monotonic: Tells how long a reading takes.
    """

    def __init__(
        self,
        path: Path,
        *,
        host: Host | None = None,
        limits: Limits = _LIMITS,
        search_seconds: float = 15.0,
        keep_seconds: float = 900.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._host = host or read_host()
        self._limits = limits
        self._search_seconds = search_seconds
        self._keep_seconds = keep_seconds
        self._monotonic = monotonic
        self._turn = 0
        self._searched_time: float | None = None
        self._directories: dict[FileKey, RunDirectory] = {}
        self._gone: list[tuple[float, RunDirectory]] = []

    def is_idle(self, now: float) -> bool:
        """Tell whether there is nothing to read and nowhere to search yet.

        Args:
            now: Unix seconds.
        """
        return not self._is_due(now) and not self._directories and not self._gone

    def find(self, now: float) -> tuple[RunDirectory, ...]:
        """Give the run directories of all containers, those of late ones included.

        Args:
            now: Unix seconds.
        """
        if self._is_due(now):
            self._searched_time = now
            self._search(now)
        return self._list()

    def read(self, now: float) -> tuple[DirectoryReading, ...]:
        """Read the run directories of all containers, and discard there what nobody needs.

        Args:
            now: Unix seconds.
        """
        directories = self.find(now)
        first = self._turn % max(1, len(directories))
        share = max(_LEAST_FILES, _MOST_FILES // max(1, len(directories)))
        until = self._monotonic() + _SEARCH_FILES_SECONDS
        readings: list[DirectoryReading] = []
        for directory in (*directories[first:], *directories[:first]):
            is_searched = not readings or self._monotonic() < until
            self._turn += is_searched
            directory.allow(min(share, self._limits.files))
            with contextlib.suppress(SourceError):  # one that we may not read is not ours
                readings.append(directory.read(now, is_searched=is_searched))
                if is_searched:
                    directory.discard(now)
        return tuple(readings)

    def close(self) -> None:
        """Close every directory."""
        for directory in self._list():
            directory.close()
        self._directories = {}
        self._gone = []

    def _is_due(self, now: float) -> bool:
        before = self._searched_time
        return before is None or abs(now - before) >= self._search_seconds

    def _list(self) -> tuple[RunDirectory, ...]:
        return (*self._directories.values(), *(directory for _, directory in self._gone))

    def _search(self, now: float) -> None:
        found = find_run_directories(self._path, procfs=self._host.procfs)
        keys = {directory.key for directory in found}
        for directory in found:
            if directory.key in self._directories:
                os.close(directory.descriptor)
                continue
            self._directories[directory.key] = RunDirectory(
                directory.descriptor, path=directory.path, limits=self._limits, host=self._host
            )
        for key in self._directories.keys() - keys:
            self._let_go(key, now)
        self._forget(now)

    def _let_go(self, key: FileKey, now: float) -> None:
        directory = self._directories.pop(key)
        if key == _read_key(self._path):  # it turned out to be our own
            directory.close()
            return
        directory.detach()
        self._gone.append((now, directory))

    def _forget(self, now: float) -> None:
        kept: list[tuple[float, RunDirectory]] = []
        for gone_time, directory in self._gone:
            if abs(now - gone_time) < self._keep_seconds or not directory.is_deserted:
                kept.append((gone_time, directory))
            else:
                directory.close()
        for _, directory in kept[:-_MOST_GONE]:
            directory.close()
        self._gone = kept[-_MOST_GONE:]


def _read_key(path: Path) -> FileKey | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return FileKey(status.st_dev, status.st_ino)


def _one_process_of_each_namespace(procfs: Path) -> Iterator[int]:
    """Give a process of each mount namespace but our own, as far as we may look into them."""
    try:
        names = os.listdir(procfs)  # noqa: PTH208 - numbers, not paths
        seen = {(procfs / "self/ns/mnt").stat().st_ino}
    except OSError:
        return
    for name in names:
        if not name.isdigit() or len(seen) > _MOST_NAMESPACES:
            continue
        try:
            namespace = os.stat(f"{procfs}/{name}/ns/mnt").st_ino  # noqa: PTH116 - thousands of them
        except OSError:  # not ours to look into, or it just ended
            continue
        if namespace not in seen:
            seen.add(namespace)
            yield int(name)


def _walk(root: Path, path: Path) -> int:
    """Open a directory below another process's root, one step at a time.

    Raises:
        OSError: A step does not exist, is no directory or a symbolic link, or is not permitted.
    """
    descriptor = os.open(root, _O_PATH | _O_DIRECTORY | _O_CLOEXEC)
    *steps, last = path.parts[1:]
    for step in [*steps, last]:
        flags = os.O_RDONLY if step is last else _O_PATH
        try:
            inner = os.open(
                step, flags | _O_DIRECTORY | _O_NOFOLLOW | _O_CLOEXEC, dir_fd=descriptor
            )
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
