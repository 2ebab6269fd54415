"""Read files to which other processes append, in pieces, within limits on time and size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from trainvitals.foreign_files import open_beneath, open_regular

_GUARD_BYTES = 64


class FollowedFile:
    """Reads the data that was appended to a file since the last read.

    `peek` returns the bytes after the offset without consuming them, and `advance` moves the
    offset, so that an incomplete part is read again. The last bytes before the offset are kept and
    compared with the file. A rewritten file is therefore detected even if it has grown past the
    offset.

    Args:
        path: The path of the file.
        beneath: The directory below which symbolic links are not followed; if it is empty, links
            are followed as described for `open_regular`.

    Attributes:
        path: The path of the file.
        offset: The position at which the next `peek` begins.
        size: The size of the file at the last `peek`.
        modified_time: The time when the file was last written to, in Unix seconds, as of the last
            `peek`.
        identity: The device and inode of the file that was opened last; None if no file was opened.
    """

    __slots__ = (
        "_beneath",
        "_descriptor",
        "_guard",
        "_peeked",
        "identity",
        "modified_time",
        "offset",
        "path",
        "size",
    )

    def __init__(self, path: str, *, beneath: str = "") -> None:
        self.path = path
        self._beneath = beneath
        self.offset = 0
        self.size = 0
        self.modified_time = 0.0
        self.identity: tuple[int, int] | None = None
        self._descriptor: int | None = None
        self._guard = b""
        self._peeked = 0

    def peek(self, most_bytes: int) -> tuple[bytes, bool]:
        """Return the bytes after the offset.

        Args:
            most_bytes: The maximum number of bytes to return.

        Returns:
            The bytes, which are empty at the end of the file, and whether the file was replaced or
            rewritten. In this case, the bytes are from the start of the file.

        Raises:
            OSError: The file cannot be opened or read, or is not a regular file.
        """
        descriptor, restarted = self._reopen()
        status = os.fstat(descriptor)
        self.size = status.st_size
        self.modified_time = min(status.st_mtime, status.st_ctime)
        start = self.offset - len(self._guard)
        data = os.pread(descriptor, len(self._guard) + most_bytes, start)
        if not data.startswith(self._guard) or self.offset > self.size:
            self.offset, self._guard, restarted = 0, b"", True
            data = os.pread(descriptor, most_bytes, 0)
        data = data[len(self._guard) :]
        self._peeked = self.offset + len(data)
        return data, restarted

    def advance(self, taken: bytes) -> None:
        """Move the offset past bytes that `peek` returned."""
        self.offset += len(taken)
        self._guard = (self._guard + taken[-_GUARD_BYTES:])[-_GUARD_BYTES:]

    def skip(self, count: int) -> None:
        """Move the offset past a number of bytes that were not read."""
        self.offset += count
        self._guard = b""

    def close(self) -> None:
        """Close the file; a later `peek` reopens it and continues at the offset."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _reopen(self) -> tuple[int, bool]:
        """Open the file, or its replacement if the old file was read to its end.

        Returns:
            The file descriptor, and whether the file was replaced.
        """
        if self._descriptor is not None:
            if self._peeked < os.fstat(self._descriptor).st_size or not self._lost_its_name():
                return self._descriptor, False
            self.close()
        before = self.identity
        descriptor = (
            open_beneath(self._beneath, self.path) if self._beneath else open_regular(self.path)
        )
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
            return False  # the name no longer exists, but the open file can still be read
        return (status.st_dev, status.st_ino) != self.identity


Item = TypeVar("Item")

_BUDGET_SECONDS = 0.25
_MARGIN_SECONDS = 0.05
_SEARCH_INTERVAL_SECONDS = 2.0
_SEARCHES_TAKE_AT_MOST = 0.05


class ReadBudget(Generic[Item]):
    """Limits a reading of the followed files to a quarter of a second.

    Because of this limit, a large file never delays a scrape. The next reading begins with the
    first file that was not reached. A search for files is due every two seconds, or less often if
    searches are slow, so that searching takes at most 5% of the time.

    Args:
        monotonic: A function that returns the time of the monotonic clock to which deadlines refer,
            in seconds.
    """

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends_at = 0.0
        self._first = 0
        self._next_search = float("-inf")

    def is_search_due(self) -> bool:
        """Return whether a search for files is due."""
        return self._monotonic() >= self._next_search

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Measure how long a search for files takes."""
        started = self._monotonic()
        yield
        now = self._monotonic()
        self._next_search = now + max(
            _SEARCH_INTERVAL_SECONDS, (now - started) / _SEARCHES_TAKE_AT_MOST
        )

    def take(self, items: Sequence[Item], deadline: float) -> Iterator[Item]:
        """Yield at least one item, and further items until this reading's time is used up."""
        self._ends_at = min(self._monotonic() + _BUDGET_SECONDS, deadline - _MARGIN_SECONDS)
        first = self._first % len(items) if items else 0
        for count, item in enumerate([*items[first:], *items[:first]]):
            if count and self.is_over():
                return
            yield item
            self._first = first + count + 1

    def is_over(self) -> bool:
        """Return whether the time for this reading is used up."""
        return self._monotonic() >= self._ends_at
