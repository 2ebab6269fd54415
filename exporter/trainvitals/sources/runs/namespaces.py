"""Read run directories inside containers without a shared volume, through `/proc/PID/root`.

Each container has its own mount namespace, which contains its own run directory. Root and the user
of a process can open the process's root directory.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.files import read_small
from trainvitals.sources.runs.directory import Limits, RunDirectory
from trainvitals.sources.runs.liveness import Host, read_host
from trainvitals.sources.runs.owners import Users, is_trusted, take_turns
from trainvitals.sources.runs.rankfile import FileKey
from trainvitals.sources.runs.seen_files import DirectoryReading

_O_PATH = getattr(os, "O_PATH", 0)
_O_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_O_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_O_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_MOST_NAMESPACES = 256
# On most machines, every user can create mount namespaces and therefore many containers. The limits
# per container are lower than the limits of our own directory, and all containers share a limit.
_MOST_FILES, _LEAST_FILES = 256, 4
_LIMITS = Limits(files=64, names=1024, new=64)
_MOST_GONE = 64
# The ranks of a removed container remain readable for this long.
_KEEP_SECONDS = 900.0
_NOBODY = 65534
# The time limit for listing directories; the next reading begins with unlisted directories.
_SEARCH_FILES_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """A run directory in another mount namespace.

    Attributes:
        path: The path of the directory, which is valid while the process is alive.
        descriptor: The descriptor of the open directory, which the caller closes.
        key: The identity of the directory, which is the same under every name and in every
            namespace.
        owner: The ID of the user whose process was used to find the directory.
    """

    path: Path
    descriptor: int
    key: FileKey
    owner: int = 0


def find_run_directories(
    path: Path,
    *,
    procfs: Path = Path("/proc"),
    most: int = 64,
    users: Users = Users(),  # noqa: B008 - immutable
) -> tuple[FoundDirectory, ...]:
    """Return the run directories in all other mount namespaces, each directory once.

    Processes that this user is not permitted to access are skipped. Symbolic links are not
    followed, because their targets would be resolved in the namespace of the calling process.

    Args:
        path: The absolute path of a run directory in each namespace.
        procfs: The path of `/proc`; it must show the containers' processes.
        most: The maximum number of directories to return.
        users: The ranges of user IDs that are treated as one user. Directories are chosen from each
            user in turn.
    """
    known = {_read_key(path)}
    found: list[FoundDirectory] = []
    for pid, owner in _one_process_of_each_namespace(procfs, users):
        root = procfs / str(pid) / "root"
        with contextlib.suppress(OSError):
            descriptor = _walk(root, path)
            status = os.fstat(descriptor)
            key = FileKey(status.st_dev, status.st_ino)
            if key in known or len(found) >= most:
                os.close(descriptor)
                continue
            known.add(key)
            found.append(FoundDirectory(root / path.relative_to("/"), descriptor, key, owner))
    return tuple(found)


class ContainerDirectories:
    """The run directories in other mount namespaces, kept open between readings.

    Args:
        path: The absolute path of a run directory in each namespace.
        host: The machine on which the trainers run; None for this machine.
        search_seconds: The interval between searches for namespaces, which take some milliseconds.
        monotonic: A function that returns the time of a monotonic clock, in seconds. It is used to
            measure how long a reading takes.
        users: The users whose run files are read.
    """

    def __init__(
        self,
        path: Path,
        *,
        host: Host | None = None,
        search_seconds: float = 15.0,
        monotonic: Callable[[], float] = time.monotonic,
        users: Users = Users(),  # noqa: B008 - immutable
    ) -> None:
        self._users = users
        self._path = path
        self._host = host or read_host()
        self._search_seconds = search_seconds
        self._monotonic = monotonic
        self._turn = 0
        self._searched_time: float | None = None
        self._directories: dict[FileKey, RunDirectory] = {}
        self._owners: dict[FileKey, int] = {}
        self._gone: list[tuple[float, RunDirectory]] = []

    def is_idle(self, now: float) -> bool:
        """Return whether no directory is known and no search for directories is due.

        Args:
            now: The current time, in Unix seconds.
        """
        return not self._is_due(now) and not self._directories and not self._gone

    def find(self, now: float) -> tuple[RunDirectory, ...]:
        """Return the run directories of all containers, including recently removed containers.

        Args:
            now: The current time, in Unix seconds.
        """
        if self._is_due(now):
            self._searched_time = now
            self._search(now)
        return self._list()

    def read(self, now: float) -> tuple[DirectoryReading, ...]:
        """Read the run directories of all containers, and discard files that are no longer needed.

        Args:
            now: The current time, in Unix seconds.
        """
        directories = self.find(now)
        first = self._turn % max(1, len(directories))
        shares = self._share_files()
        until = self._monotonic() + _SEARCH_FILES_SECONDS
        readings: list[DirectoryReading] = []
        for directory in (*directories[first:], *directories[:first]):
            is_searched = not readings or self._monotonic() < until
            self._turn += is_searched
            directory.allow(shares.get(directory, _LEAST_FILES))
            with contextlib.suppress(SourceError):  # another user's directory, not readable
                readings.append(directory.read(now, is_searched=is_searched))
                if is_searched:
                    directory.discard(now)
        return tuple(readings)

    def close(self) -> None:
        """Close all run directories."""
        for directory in self._list():
            directory.close()
        self._directories = {}
        self._gone = []

    def _share_files(self) -> dict[RunDirectory, int]:
        """Return each directory's file limit.

        The limit on run files is divided among users, then among each user's directories.
        """
        group = self._users.find_group
        owners = Counter(group(self._owners[key]) for key in self._directories)
        gone = (directory for _, directory in self._gone)
        share = _MOST_FILES // max(1, len(owners) + bool(self._gone))
        shares = {
            directory: share // owners[group(self._owners[key])]
            for key, directory in self._directories.items()
        }
        shares |= {directory: share // len(self._gone) for directory in gone}
        return {
            directory: min(_LIMITS.files, max(_LEAST_FILES, each))
            for directory, each in shares.items()
        }

    def _is_due(self, now: float) -> bool:
        before = self._searched_time
        return before is None or abs(now - before) >= self._search_seconds

    def _list(self) -> tuple[RunDirectory, ...]:
        return (*self._directories.values(), *(directory for _, directory in self._gone))

    def _search(self, now: float) -> None:
        found = find_run_directories(self._path, procfs=self._host.procfs, users=self._users)
        keys = {directory.key for directory in found}
        for directory in found:
            if directory.key in self._directories:
                os.close(directory.descriptor)
                continue
            self._directories[directory.key] = RunDirectory(
                directory.descriptor,
                path=directory.path,
                limits=_LIMITS,
                host=self._host,
                users=self._users,
            )
            self._owners[directory.key] = directory.owner
        for key in self._directories.keys() - keys:
            self._detach(key, now)
        self._forget(now)

    def _detach(self, key: FileKey, now: float) -> None:
        directory = self._directories.pop(key)
        self._owners.pop(key, None)
        if key == _read_key(self._path):  # this is our own directory
            directory.close()
            return
        directory.detach()
        self._gone.append((now, directory))

    def _forget(self, now: float) -> None:
        kept: list[tuple[float, RunDirectory]] = []
        for gone_time, directory in self._gone:
            if abs(now - gone_time) < _KEEP_SECONDS or not directory.has_no_living_rank:
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


def _one_process_of_each_namespace(procfs: Path, users: Users) -> list[tuple[int, int]]:
    """Return the PID and user of one accessible process in each other mount namespace.

    Because a user can create many namespaces, the processes are chosen from each user in turn,
    beginning with root and this process's user.
    """
    found: list[tuple[int, int]] = []
    try:
        names = os.listdir(procfs)  # noqa: PTH208 - numbers, not paths
        seen = {(procfs / "self/ns/mnt").stat().st_ino}
    except OSError:
        return found
    for name in names:
        if not name.isdigit():
            continue
        try:
            namespace = os.stat(f"{procfs}/{name}/ns/mnt").st_ino  # noqa: PTH116 - thousands of them
        except OSError:  # no permission, or the process has just ended
            continue
        if namespace not in seen:
            seen.add(namespace)
            found.append((int(name), _read_owner(procfs / name)))
    found.sort(key=lambda process: not is_trusted(process[1]))
    return take_turns(found, lambda process: users.find_group(process[1]))[:_MOST_NAMESPACES]


def _read_owner(path: Path) -> int:
    """Return a process's real user ID, or the overflow UID if the process has just ended.

    The owner of the process's directory in `/proc` is not used, since the owner is root for every
    process that is not dumpable.
    """
    words = (read_small(path / "status") or "").partition("\nUid:")[2].split()
    return int(words[0]) if words else _NOBODY


def _walk(root: Path, path: Path) -> int:
    """Open a directory below another process's root, component by component.

    Raises:
        OSError: A component does not exist, is not a directory, is a symbolic link, or cannot be
            opened.
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
