"""Small files of `/proc` and `/sys` that are read again and again.

Opening such a file costs more than reading it, so each stays open.
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
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

_CHUNK_BYTES = 1 << 16
# Run files and clients need descriptors more than what is kept open to save time.
_SHARE = 0.5

# What the kernel answers for a file whose subject is not there: no such file, a process that
# ended (ESRCH), a device that was pulled (ENODEV), a feature that is off (EOPNOTSUPP).
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.ENODEV, errno.EOPNOTSUPP})


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the host's file systems are found.

    Attributes:
        procfs: The host's `/proc`.
        sysfs: The host's `/sys`.
        rootfs: The host's root directory; in a container, where it is mounted.
    """

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    rootfs: Path = Path("/")


def has_room(descriptor: int, share: float) -> bool:
    """Return whether less than a share of all descriptors is in use.

    The kernel returns the lowest free number, so the number of a new one shows how many are in use.
    """
    if resource is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            return descriptor < limit * share
    return True


class KeptFile:
    """A file that is read on every scrape and kept open between two.

    Where half of all descriptors are in use, it is opened for each reading.

    Args:
        path: The file; it need not exist (yet).
        single: Whether the kernel returns it in one piece, so that no second read is needed. It
            does for `/proc/stat`, `meminfo`, `loadavg`, `pressure/*`, `PID/stat` and `/sys`; not
            for lists such as `vmstat`, `diskstats`, `net/dev` and `mountinfo`, which are returned
            by pages, however large the buffer.
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
            The contents; None if the file does not exist, or its subject is gone or switched off in
            the kernel.

        Raises:
            SourceError: The file exists and cannot be read.
        """
        if self._descriptor is not None:
            try:
                data = os.pread(self._descriptor, _CHUNK_BYTES, 0)
                if self._single and len(data) < _CHUNK_BYTES:
                    return data
                return _read_on(self._descriptor, data)
            except OSError:
                self.close()  # its process or device ended; another may have come by that name
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
        """Read the whole file, which every machine has.

        Raises:
            SourceError: The file does not exist or cannot be read.
        """
        data = self.read()
        if data is None:
            raise SourceError(f"cannot find {self.path}; {_explain_absence(self.path)}")
        return data

    def unchanged(self) -> bool:
        """Return whether the kernel reports that the file has not changed since the last read.

        The kernel does so for `mountinfo`: it is ready with POLLPRI after a mount was added or
        removed. A file that does not support this (a regular one) is always ready (POLLOUT), and so
        counts as changed.
        """
        if self._descriptor is None:
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLPRI | select.POLLOUT)
        return not self._poll.poll(0)

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._poll = None


def _explain_absence(path: Path) -> str:
    """Return why a file that every machine has may be missing, and what to do."""
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
    """Read what follows the data that was read from the start; an empty read is the end."""
    while more := os.pread(descriptor, _CHUNK_BYTES, len(data)):
        data += more
    return data


def read_small(path: Path) -> str | None:
    """Read a small file that is read seldom, without surrounding white space.

    Returns:
        The text; None if the file does not exist, cannot be read, or has no value (a network
        interface that is down answers EINVAL for its speed).
    """
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def read_text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def not_understood(path: Path) -> SourceError:
    """Return the error for a file whose contents are not as the kernel documents them."""
    return SourceError(f"cannot understand {path}; check that it is the kernel's own file")


def name_machine(roots: Roots = Roots()) -> str:
    """Return the machine's name: the system's, or in a container that of the host's `/etc/hostname`.

    Args:
        roots: The path of the host's root directory.
    """
    is_mounted = roots.rootfs != Path("/")
    name = read_small(roots.rootfs / "etc/hostname") if is_mounted else None
    return name or os.uname().nodename
