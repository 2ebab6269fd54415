"""Read small files in `/proc` and `/sys` repeatedly.

Opening a file in `/proc` or `/sys` takes longer than reading the file, so each file is kept open.
"""

from __future__ import annotations

import errno
import os
import select
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError

try:
    import resource
except ImportError:  # the module is not available on Windows
    resource = None  # type: ignore[assignment]

_CHUNK_BYTES = 1 << 16
# The share of file descriptors up to which files are kept open; the rest is for run files and
# clients.
_SHARE = 0.5

# The errors that mean that there is nothing to read: the file does not exist, the process has ended
# (ESRCH), the device was removed (ENODEV), or the kernel feature is disabled (EOPNOTSUPP).
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV, errno.EOPNOTSUPP})


@dataclass(frozen=True, slots=True)
class Roots:
    """The paths of the host's file systems.

    Attributes:
        procfs: The host's `/proc`.
        sysfs: The host's `/sys`.
        rootfs: The host's root directory, or in a container the mount point of that directory.
    """

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    rootfs: Path = Path("/")


def has_room(descriptor: int, share: float) -> bool:
    """Return whether the number of used file descriptors is below a share of the limit.

    The kernel assigns the lowest free number, so the number of a new file descriptor is an estimate
    of how many file descriptors are in use.
    """
    if resource is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            return descriptor < limit * share
    return True


class KeptFile:
    """A file that is read on every scrape and kept open between scrapes.

    If at least half of all file descriptors are in use, the file is opened for each read.

    Args:
        path: The path of the file, which need not exist yet.
        single: Whether the kernel returns the whole file in one read, so that no second read is
            needed. The kernel does so for `/proc/stat`, `meminfo`, `loadavg`, `pressure/*`,
            `PID/stat` and `/sys`, but not for lists such as `vmstat`, `diskstats`, `net/dev` and
            `mountinfo`, which are returned page by page regardless of the buffer size.
    """

    __slots__ = ("_descriptor", "_poll", "_single", "path")

    def __init__(self, path: Path, *, single: bool = False) -> None:
        self.path = path
        self._single = single
        self._descriptor: int | None = None
        self._poll: select.poll | None = None

    def read(self) -> bytes | None:
        """Read the whole file from its start.

        Returns:
            The contents of the file; None if the file does not exist, if its process or device no
            longer exists, or if the kernel feature is disabled.

        Raises:
            SourceError: The file exists but cannot be read.
        """
        if self._descriptor is not None:
            try:
                data = os.pread(self._descriptor, _CHUNK_BYTES, 0)
                if self._single and len(data) < _CHUNK_BYTES:
                    return data
                return _read_on(self._descriptor, data)
            except OSError:
                self.close()  # another process or device may now have the name
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            data = _read_on(self._descriptor, b"")
        except OSError as error:
            self.close()
            if error.errno in _ABSENT:
                return None
            raise SourceError(
                f"cannot read {self.path}: {error.strerror}; run as a user that may read it"
            ) from error
        if not has_room(self._descriptor, _SHARE):
            self.close()
        return data

    def require(self) -> bytes:
        """Read the whole file, which must exist on every machine.

        Raises:
            SourceError: The file does not exist or cannot be read.
        """
        data = self.read()
        if data is None:
            raise SourceError(f"cannot find {self.path}; {_explain_absence(self.path)}")
        return data

    def unchanged(self) -> bool:
        """Return whether the kernel reports that the file is unchanged since the last read.

        For `mountinfo`, the kernel reports POLLPRI after a mount was added or removed. For a file
        without such reports, such as a regular file, the kernel always reports POLLOUT, so the file
        counts as changed.
        """
        if self._descriptor is None:
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLPRI | select.POLLOUT)
        return not self._poll.poll(0)

    def close(self) -> None:
        """Close the file; the next read reopens it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._poll = None


def _explain_absence(path: Path) -> str:
    """Return why a file that should exist on every machine may be missing, and the remedy."""
    missing = path
    while not missing.parent.exists():
        missing = missing.parent
    procfs = missing.parent
    if not (procfs / "self").exists():
        return "check where --path.procfs and --path.sysfs point"
    if missing.name.isdecimal():
        return (
            f"{procfs} is mounted with hidepid, which hides other users' processes; run as root, or"
            " as a member of the group that its mount option gid names"
        )
    return f"{procfs} shows processes alone (subset=pid, ProcSubset=pid); mount a whole one"


def _read_on(descriptor: int, data: bytes) -> bytes:
    """Read the rest of a file, and return its whole contents, which begin with `data`.

    The file has been read to its end when a read returns no bytes.
    """
    while more := os.pread(descriptor, _CHUNK_BYTES, len(data)):
        data += more
    return data


def read_small(path: Path) -> str | None:
    """Read a small file once, and strip surrounding white space.

    Returns:
        The text of the file; None if the file does not exist, is empty, or cannot be read. For
        example, a read of the speed of a network interface that is down fails with EINVAL.
    """
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def read_text(path: Path) -> str:
    """Return the text of a file, or an empty string if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def not_understood(path: Path) -> SourceError:
    """Return the error for a file whose contents do not match the kernel's documented format."""
    return SourceError(f"cannot understand {path}; check that it is the kernel's own file")


def name_machine(roots: Roots = Roots()) -> str:
    """Return the name of the machine.

    If the host's root directory is mounted elsewhere, as in a container, the name is read from the
    host's `/etc/hostname`. Otherwise, or if `/etc/hostname` cannot be read, the name is the
    system's hostname.

    Args:
        roots: The path of the host's root directory.
    """
    is_mounted = roots.rootfs != Path("/")
    name = read_small(roots.rootfs / "etc/hostname") if is_mounted else None
    return name or os.uname().nodename
