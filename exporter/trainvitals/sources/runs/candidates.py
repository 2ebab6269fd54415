"""The choice among the files of a run directory: which are opened, and which closed again.

A directory may hold more files than are read. Users take turns, root and our own user first; of each
user, files that a living process holds come before others, and newer before older ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import NamedTuple

from trainvitals.runfile import SUFFIX
from trainvitals.sources.runs.discarding import is_unfinished
from trainvitals.sources.runs.endings import SUFFIX as NOTE_SUFFIX
from trainvitals.sources.runs.owners import Users, is_trusted, take_turns
from trainvitals.sources.runs.rankfile import FileKey, RankFile, read_made_time


class Names(NamedTuple):
    """The names in a run directory.

    Attributes:
        runs: The run files.
        notes: The notes on ended runs.
        unfinished: The temporary files.
        is_part: Whether there are names that were not listed this time.
    """

    runs: tuple[os.DirEntry[str], ...]
    notes: tuple[str, ...]
    unfinished: tuple[str, ...]
    is_part: bool


class Candidate(NamedTuple):
    """A run file that is not open.

    Attributes:
        name: Its name.
        inode: Its inode number.
        owner: The user who owns it.
        made_time: When it was made, as the kernel tells, Unix seconds.
    """

    name: str
    inode: int
    owner: int
    made_time: float


class NameLister:
    """Lists a run directory, in parts if it has too many names.

    Any user may make thousands of names, among which those of others must be found in the end, so
    each part goes on where the one before ended.

    Args:
        most: The maximum number of names of any kind in a part.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._folder: tuple[int, int] | None = None
        self._listing: AbstractContextManager[Iterator[os.DirEntry[str]]] | None = None
        self._rest: Iterator[os.DirEntry[str]] = iter(())

    def list(self, folder: int) -> Names:
        """List an open directory, or the next part of it.

        Raises:
            OSError: It cannot be listed.
        """
        status = os.fstat(folder)
        if self._folder != (status.st_dev, status.st_ino):  # another directory has taken its place
            self.start_over()
            self._folder = status.st_dev, status.st_ino
        is_part = self._listing is not None
        if self._listing is None:
            self._listing = self._rest = os.scandir(folder)
        found = list(islice(self._rest, self._most + 1))
        if len(found) > self._most:
            is_part = True
            self._rest = chain((found.pop(),), self._rest)
        else:
            self.start_over()
        return Names(
            tuple(each for each in found if each.name.endswith(SUFFIX) and each.name[0] != "."),
            tuple(each.name for each in found if each.name.endswith(SUFFIX + NOTE_SUFFIX)),
            tuple(each.name for each in found if is_unfinished(each.name)),
            is_part,
        )

    def start_over(self) -> None:
        """Begin with the first name the next time."""
        if self._listing is not None:
            with self._listing:
                self._listing = None
        self._rest = iter(())


def order_candidates(
    entries: Iterable[os.DirEntry[str]], users: Users, *, folder: int
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the files of users that count, in the order to open them, and those of others.

    Args:
        entries: The files.
        users: The users that count.
        folder: The open directory; `DirEntry.stat` would use the one that was listed first.
    """
    counted: list[Candidate] = []
    ignored: list[Candidate] = []
    for each in entries:
        with contextlib.suppress(OSError):  # it is gone
            status = os.stat(each.name, dir_fd=folder, follow_symlinks=False)
            candidate = Candidate(each.name, each.inode(), status.st_uid, read_made_time(status))
            (counted if candidate.owner in users else ignored).append(candidate)
    counted.sort(key=lambda each: (not is_trusted(each.owner), -each.made_time))
    return take_turns(counted, lambda each: each.owner), ignored


def choose_surplus(files: Mapping[FileKey, RankFile], most: int) -> Iterator[tuple[FileKey, bool]]:
    """Yield the files to close if there are too many, and whether a living process holds each."""
    if len(files) <= most:
        return
    held = {key: file.is_held for key, file in files.items()}
    ordered = sorted(
        files,
        key=lambda key: (not is_trusted(files[key].owner), not held[key], -files[key].made_time),
    )
    for key in take_turns(ordered, lambda key: files[key].owner)[most:]:
        yield key, held[key]
