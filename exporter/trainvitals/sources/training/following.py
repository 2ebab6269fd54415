"""A file that others append to, read piece by piece as it grows."""

from __future__ import annotations

import os

from trainvitals.sources.files import open_regular

_GUARD_BYTES = 64


class FollowedFile:
    """Reads what is new in a file since the last time.

    Nothing is taken by reading: `peek` gives what follows the offset, and `advance` moves it on, so
    that a part which is not whole yet is simply met again. The last bytes before the offset are
    remembered and compared: a file that was written anew is noticed even when it has grown past the
    offset in the meantime.

    Args:
        path: The file.

    Attributes:
        path: The file.
        offset: Where the next `peek` begins.
        size: Of the file at the last `peek`.
        modified_time: When it was written to, in Unix seconds, as of the last `peek`.
        identity: Device and inode of the open file; None while it is not open.
    """

    __slots__ = (
        "_descriptor",
        "_guard",
        "_peeked",
        "identity",
        "modified_time",
        "offset",
        "path",
        "size",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.size = 0
        self.modified_time = 0.0
        self.identity: tuple[int, int] | None = None
        self._descriptor: int | None = None
        self._guard = b""
        self._peeked = 0

    def peek(self, most_bytes: int) -> tuple[bytes, bool]:
        """Give what follows the offset.

        Args:
            most_bytes: At most so much.

        Returns:
            The bytes, none at the end of the file, and whether the file was found to be another
            one or written anew, so that they begin at its start.

        Raises:
            OSError: It cannot be opened or read, or is no regular file.
        """
        descriptor, restarted = self._reopen()
        status = os.fstat(descriptor)
        self.size, self.modified_time = status.st_size, status.st_mtime
        start = self.offset - len(self._guard)
        data = os.pread(descriptor, len(self._guard) + most_bytes, start)
        if not data.startswith(self._guard) or self.offset > self.size:
            self.offset, self._guard, restarted = 0, b"", True
            data = os.pread(descriptor, most_bytes, 0)
        data = data[len(self._guard) :]
        self._peeked = self.offset + len(data)
        return data, restarted

    def advance(self, taken: bytes) -> None:
        """Move the offset past bytes that `peek` gave."""
        self.offset += len(taken)
        self._guard = (self._guard + taken[-_GUARD_BYTES:])[-_GUARD_BYTES:]

    def skip(self, count: int) -> None:
        """Move the offset past bytes that were not looked at."""
        self.offset += count
        self._guard = b""

    def close(self) -> None:
        """Close the file; a later `peek` opens it again and goes on where it was."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _reopen(self) -> tuple[int, bool]:
        """Open the file, or the one that took its name once all of ours was given."""
        if self._descriptor is not None:
            if self._peeked < os.fstat(self._descriptor).st_size or not self._lost_its_name():
                return self._descriptor, False
            self.close()
        before = self.identity
        descriptor = open_regular(self.path)
        status = os.fstat(descriptor)
        self._descriptor = descriptor
        self.identity = (status.st_dev, status.st_ino)
        if before in (None, self.identity):
            return descriptor, False
        self.offset, self._guard = 0, b""
        return descriptor, True

    def _lost_its_name(self) -> bool:
        try:
            status = os.stat(self.path)  # noqa: PTH116 - hot
        except OSError:
            return False  # nothing has its name, and what is open can still be read
        return (status.st_dev, status.st_ino) != self.identity
