"""Small files of `/proc` and `/sys` that are read again and again.

Opening such a file costs more than reading it, so each stays open.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError

_CHUNK_BYTES = 1 << 16

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


class KeptFile:
    """A file that is read on every scrape and kept open between two.

    Args:
        path: The file; it may not exist (yet).
        single: The kernel hands it out in one piece, so that no second read need look for more.
            True of `/proc/stat`, `meminfo`, `loadavg`, `pressure/*`, `PID/stat` and of `/sys`;
            not of lists such as `vmstat`, `diskstats`, `net/dev` and `mountinfo`, which come by
            the page, however large the buffer.
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
            The contents; None where the file does not exist, or what it tells about is gone or
            switched off in the kernel.

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
            return _read_on(self._descriptor, b"")
        except OSError as error:
            self.close()
            if error.errno in _ABSENT:
                return None
            raise SourceError(
                f"cannot read {self.path}: {error.strerror}; run as a user that may read it"
            ) from error

    def require(self) -> bytes:
        """Read the whole file, which every machine has.

        Raises:
            SourceError: The file does not exist or cannot be read.
        """
        data = self.read()
        if data is None:
            raise SourceError(
                f"cannot find {self.path}; check where --path.procfs and --path.sysfs point"
            )
        return data

    def unchanged(self) -> bool:
        """Tell whether the kernel vouches that the file reads as it did the last time.

        The kernel does so for `mountinfo`: it is ready with POLLPRI after a mount came or went.
        A file that cannot tell (a regular one) is always ready to be written (POLLOUT), and
        so counts as changed.
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


def _read_on(descriptor: int, data: bytes) -> bytes:
    """Read what follows the data that was read from the start; an empty read is the end."""
    while more := os.pread(descriptor, _CHUNK_BYTES, len(data)):
        data += more
    return data


def open_regular(path: str, *, folder: int | None = None, follows: bool = True) -> int:
    """Open a regular file to read it, and nothing that takes its name in the meantime.

    To open a device can have effects (a watchdog restarts the machine), and to open a pipe can take
    for ever. So what has the name is held first, then looked at, and opened only then.

    Args:
        path: The file.
        folder: An open directory that the path begins from.
        follows: Whether it may be a symbolic link.

    Raises:
        OSError: It cannot be opened; EINVAL where it is no regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    no_link = 0 if follows else os.O_NOFOLLOW
    if not hasattr(os, "O_PATH"):  # not Linux
        return _require_regular(os.open(path, flags | no_link, dir_fd=folder))
    held = _require_regular(os.open(path, os.O_PATH | os.O_CLOEXEC | no_link, dir_fd=folder))
    try:
        return os.open(f"/proc/self/fd/{held}", flags)
    finally:
        os.close(held)


def _require_regular(descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return descriptor


def read_small(path: Path) -> str | None:
    """Read a small file that is asked for seldom, without surrounding white space.

    Returns:
        The text; None where the file does not exist, cannot be read, or has nothing to say (a
        network interface that is down answers EINVAL for its speed).
    """
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def not_understood(path: Path) -> SourceError:
    """Give the error for a file whose contents are not as the kernel documents them."""
    return SourceError(f"cannot understand {path}; check that it is the kernel's own file")
