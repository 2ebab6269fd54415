"""The user IDs that the system assigns to a user for rootless containers (`/etc/subuid`).

A user of rootless Podman or Docker may create files as 65,536 other users. When files are chosen
from each user in turn, all of these user IDs are therefore treated as one user.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path

from trainvitals.foreign_files import read_regular
from trainvitals.foreign_numbers import read_digits

_MOST_BYTES = 1 << 22
_MOST_RANGES = 20_000
_KEPT_SECONDS = 60.0
_LARGEST = (1 << 32) - 1
_FIELDS = 3

Range = tuple[int, int]  # the first user ID, and the last user ID + 1


class Subordinates:
    """The ranges of user IDs in a file, which is checked for changes at most once a minute.

    Args:
        path: The path of the file; if the file cannot be read, no range is known.
        monotonic: A function that returns the time of a monotonic clock, in seconds.
    """

    def __init__(
        self, path: Path = Path("/etc/subuid"), *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._monotonic = monotonic
        self._read_time = -float("inf")
        self._identity: tuple[int, int, int] | None = None
        self._ranges: list[Range] = []

    def find_first(self, user: int) -> int:
        """Return the first ID of the range that contains a user ID.

        A user ID that is in no range is returned unchanged.
        """
        self._refresh()
        index = bisect_right(self._ranges, user, key=itemgetter(0)) - 1
        if index < 0:
            return user
        first, end = self._ranges[index]
        return first if user < end else user

    def _refresh(self) -> None:
        now = self._monotonic()
        if now - self._read_time < _KEPT_SECONDS:
            return
        self._read_time = now
        try:
            status = self._path.stat()
            identity = status.st_mtime_ns, status.st_size, status.st_ino
            if identity != self._identity:
                text = read_regular(self._path, _MOST_BYTES).decode(errors="replace")
                self._ranges = merge_ranges(parse_ranges(text.split("\n", _MOST_RANGES)))
            self._identity = identity
        except OSError:  # most machines without rootless containers have no such file
            self._identity, self._ranges = None, []


def parse_ranges(lines: Iterable[str]) -> Iterator[Range]:
    """Yield the ranges of user IDs in lines such as `ada:100000:65536`; ignore other lines."""
    for line in lines:
        fields = line.strip().split(":")
        if len(fields) == _FIELDS and fields[1] and fields[2]:
            first, count = (read_digits(field, _LARGEST) for field in fields[1:])
            if first is not None and count:
                yield first, first + count


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges of user IDs in ascending order, with overlapping ranges merged."""
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged
