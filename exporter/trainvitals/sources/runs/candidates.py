"""Choose which files in a run directory to open, and which open files to close.

A run directory may contain more files than are read. Files are chosen from each user in turn,
beginning with root and this process's user. For each user, the files that a living process holds
come before other files, and newer files come before older files.
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
from trainvitals.sources.runs.launches import SUFFIX as LAUNCH_SUFFIX
from trainvitals.sources.runs.owners import Users, is_trusted, take_turns
from trainvitals.sources.runs.rankfile import FileKey, RankFile, read_made_time


class Names(NamedTuple):
    """The names in a run directory.

    Attributes:
        runs: The directory entries of run files.
        notes: The names of notes on ended runs.
        passing: The names of files that are removed when they are old: launch notes, and temporary
            files that have not been renamed yet.
        is_part: Whether the run directory contains further names that were not listed this time.
    """

    runs: tuple[os.DirEntry[str], ...]
    notes: tuple[str, ...]
    passing: tuple[str, ...]
    is_part: bool


class Candidate(NamedTuple):
    """A run file that has not been opened.

    Attributes:
        name: The name of the run file.
        inode: The inode number of the run file.
        owner: The ID of the user who owns the run file.
        made_time: The time when the run file was created, according to the kernel, in Unix seconds.
    """

    name: str
    inode: int
    owner: int
    made_time: float


class NameLister:
    """Lists a run directory, in parts if the directory contains too many names.

    Any user may create thousands of files, but the files of other users must be found eventually.
    Each listing therefore continues after the names that the previous listing returned.

    Args:
        most: The maximum number of names in a part, including the names of other files.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._folder: tuple[int, int] | None = None
        self._listing: AbstractContextManager[Iterator[os.DirEntry[str]]] | None = None
        self._rest: Iterator[os.DirEntry[str]] = iter(())

    def list(self, folder: int) -> Names:
        """List the names in an open directory, or in the next part of the directory.

        Raises:
            OSError: The directory cannot be listed.
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
            tuple(
                each.name
                for each in found
                if each.name.endswith(LAUNCH_SUFFIX) or is_unfinished(each.name)
            ),
            is_part,
        )

    def start_over(self) -> None:
        """Begin the next listing with the directory's first name."""
        if self._listing is not None:
            with self._listing:
                self._listing = None
        self._rest = iter(())


def order_candidates(
    entries: Iterable[os.DirEntry[str]], users: Users, *, folder: int
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the files of counted users, in the order to open the files, and all other files.

    Args:
        entries: The directory entries of the files.
        users: The users whose files are counted.
        folder: The open directory that contains the files. `DirEntry.stat` is not called, since it
            uses the descriptor with which the listing began.
    """
    counted: list[Candidate] = []
    ignored: list[Candidate] = []
    for each in entries:
        with contextlib.suppress(OSError):  # the file is gone
            status = os.stat(each.name, dir_fd=folder, follow_symlinks=False)
            candidate = Candidate(each.name, each.inode(), status.st_uid, read_made_time(status))
            (counted if candidate.owner in users else ignored).append(candidate)
    counted.sort(key=lambda each: (not is_trusted(each.owner), -each.made_time))
    return take_turns(counted, lambda each: users.find_group(each.owner)), ignored


def choose_surplus(
    files: Mapping[FileKey, RankFile], most: int, users: Users
) -> Iterator[tuple[FileKey, bool]]:
    """Yield each file beyond the limit, to be closed, and whether a living process holds it."""
    if len(files) <= most:
        return
    held = {key: file.is_held for key, file in files.items()}
    ordered = sorted(
        files,
        key=lambda key: (not is_trusted(files[key].owner), not held[key], -files[key].made_time),
    )
    for key in take_turns(ordered, lambda key: users.find_group(files[key].owner))[most:]:
        yield key, held[key]
