"""The space on the host's file systems, read from `mountinfo` and with `statvfs(3)`.

If the server of a mount does not respond, a `statvfs` call on the mount never returns. File systems
that may hang are therefore read by worker threads with a short timeout. While a read hangs, its
file system is not read again.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainvitals.sources.files import KeptFile, Roots, not_understood
from trainvitals.sources.host.mounts import Mount, parse_mountinfo
from trainvitals.workers import WorkerPool

# A server that uses its reserve reports negative free space, which `statvfs` returns as a very
# large number.
_NEGATIVE = 1 << 63
# The maximum total time to wait for all file systems that may hang.
_PATIENCE_SECONDS = 0.25

# A missing permission or a hidden mount point, neither of which is reported as an error.
_UNSEEN = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class Space:
    """The result of `statvfs` for one file system.

    Attributes:
        size_bytes: The file system's size, in bytes.
        avail_bytes: The space available to users other than root, in bytes, at most `size_bytes`.
        files: The maximum number of files; None if the file system has no such limit or reports an
            implausible limit, with more free files than the maximum.
        files_free: The number of files that can still be created; None if `files` is None.
        readonly: Whether the file system is read-only, possibly because of a disk error.
    """

    size_bytes: int
    avail_bytes: int
    files: int | None
    files_free: int | None
    readonly: bool


@dataclass(frozen=True, slots=True)
class Filesystem:
    """A mounted file system.

    Attributes:
        mountpoint: The mount point on the host.
        device: The mounted device: a block device, or a server and its path.
        fstype: The file system type, such as `ext4` or `nfs4`.
        space: The file system's space; None if the space could not be read.
        responding: Whether the server responds; None for a local file system. The value is also
            None if the mount point is hidden or this user is not permitted to read it.
        trouble: The reason why the space could not be read; None if the space was read. The value
            is also None if the mount point is hidden or this user is not permitted to read it.
    """

    mountpoint: str
    device: str
    fstype: str
    space: Space | None
    responding: bool | None
    trouble: str | None


@dataclass(frozen=True, slots=True)
class FilesystemReading:
    """A reading of the host's file systems.

    Attributes:
        filesystems: The file systems that contain data, the most important first, at most `limit`.
        dropped: The number of file systems omitted because of `limit`, plus the number of lines in
            the mount list that could not be parsed.
    """

    filesystems: tuple[Filesystem, ...]
    dropped: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a `statvfs` call: the space, an error, or neither if the call hangs."""

    space: Space | None = None
    error: OSError | None = None


class FilesystemSource:
    """Reads the space on the host's file systems.

    Args:
        roots: The paths of `/proc` and the host's root directory.
        statvfs: A function that reads a file system's space, such as `os.statvfs`.
        clock: A function that returns a monotonic time in seconds; deadlines are times of this
            clock.
        limit: The maximum number of file systems to list.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        statvfs: Callable[[bytes], os.statvfs_result] = os.statvfs,
        clock: Callable[[], float] = time.monotonic,
        limit: int = 32,
    ) -> None:
        # If the host's root is mounted into a container, process 1 lists the host's mounts.
        process = "self" if roots.rootfs == Path("/") else "1"
        self._mountinfo = KeptFile(roots.procfs / process / "mountinfo")
        self._prefix = os.fsencode(roots.rootfs).rstrip(b"/")
        self._statvfs = statvfs
        self._clock = clock
        self._limit = limit
        self._data: bytes | None = None
        self._mounts: tuple[Mount, ...] = ()
        self._not_understood = 0
        self._pool: WorkerPool | None = None

    def read(self, deadline: float) -> FilesystemReading:
        """Read the current space on the host's file systems.

        Args:
            deadline: The time at which the caller stops waiting, according to `clock`.

        Raises:
            SourceError: The mount list cannot be read or parsed.
        """
        self._read_mounts()
        shown = self._mounts[: self._limit]
        answers = self._ask_guarded([mount for mount in shown if mount.guarded], deadline)
        for mount in shown:
            if not mount.guarded:
                answers[mount.mountpoint] = self._ask_at_once(mount)
        found = [_describe(mount, answers[mount.mountpoint]) for mount in shown]
        return FilesystemReading(
            # A file system of size 0 is a kernel interface, which `df` also omits.
            tuple([one for one in found if one.space is None or one.space.size_bytes > 0]),
            len(self._mounts) - len(shown) + self._not_understood,
        )

    def close(self) -> None:
        """Close the mount list and release the worker threads."""
        self._mountinfo.close()
        self._data = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _read_mounts(self) -> None:
        # The kernel reports no change if a disk becomes read-only after an error. If the host is
        # mounted read-only in a container (a prefix), only the mount list shows such a disk.
        if self._data is not None and not self._prefix and self._mountinfo.unchanged():
            return
        data = self._mountinfo.require()
        if data == self._data:
            return
        try:
            self._mounts, self._not_understood = parse_mountinfo(data)
        except ValueError as error:
            raise not_understood(self._mountinfo.path) from error
        self._data = data

    def _ask(self, mount: Mount) -> Space:
        space = measure_space(self._statvfs(self._prefix + mount.path))
        return replace(space, readonly=mount.readonly) if self._prefix else space

    def _ask_at_once(self, mount: Mount) -> _Answer:
        try:
            return _Answer(space=self._ask(mount))
        except OSError as error:
            return _Answer(error=error)

    def _ask_guarded(self, mounts: list[Mount], deadline: float) -> dict[str, _Answer]:
        if not mounts:
            return {}
        if self._pool is None:
            # There are as many workers as mounts, so that a mount that hangs delays no other mount.
            self._pool = WorkerPool(name="filesystem", limit=self._limit)
        patience = max(0.0, min(_PATIENCE_SECONDS, deadline - self._clock()))
        tasks = {mount.mountpoint: partial(self._ask_at_once, mount) for mount in mounts}
        outcomes = self._pool.gather(tasks, patience)
        return {key: outcome.value or _Answer() for key, outcome in outcomes.items()}


def measure_space(answer: os.statvfs_result) -> Space:
    """Return the space that a `statvfs` result describes."""
    avail = 0 if answer.f_bavail >= _NEGATIVE else min(answer.f_bavail, answer.f_blocks)
    counts_files = 0 < answer.f_files >= answer.f_ffree
    return Space(
        size_bytes=answer.f_blocks * answer.f_frsize,
        avail_bytes=avail * answer.f_frsize,
        files=answer.f_files if counts_files else None,
        files_free=answer.f_ffree if counts_files else None,
        readonly=bool(answer.f_flag & os.ST_RDONLY),
    )


def _describe(mount: Mount, answer: _Answer) -> Filesystem:
    responding: bool | None = None
    trouble = None
    if answer.space is not None:
        responding = True
    elif answer.error is None:
        responding, trouble = False, "does not answer"
    elif answer.error.errno not in _UNSEEN:
        responding, trouble = False, answer.error.strerror
    return Filesystem(
        mountpoint=mount.mountpoint,
        device=mount.device,
        fstype=mount.fstype,
        space=answer.space,
        responding=responding if mount.remote else None,
        trouble=trouble,
    )
