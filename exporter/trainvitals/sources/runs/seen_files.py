"""A reading of one run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainvitals.runfile import Record
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.rankfile import FileKey


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A run file.

    Attributes:
        path: The path of the file, which may have been deleted.
        key: The identity of the file, which is the same in every directory.
        record: The record in the file; while `is_current` is False, the last record that was read.
        liveness: The liveness of the writer.
        is_current: Whether the records in the file are currently complete.
        can_be_noted: Whether a note on the ending may be read and written in the same directory.
            This is False if the file was deleted, and in a container, where a path could lead root
            to any place on the host.
        owner: The ID of the user who owns the file, regardless of the file's contents.
        made_time: When the file was created, according to the kernel, in Unix seconds.
    """

    path: Path
    key: FileKey
    record: Record
    liveness: Liveness
    is_current: bool
    can_be_noted: bool = True
    owner: int = 0
    made_time: float = 0.0


@dataclass(frozen=True, slots=True)
class DirectoryReading:
    """A reading of a run directory.

    Attributes:
        files: The run files, in the order in which they were first seen.
        incompatible: The number of files with the name of a run file that are not run files, have
            an unknown version, cannot be opened, or are damaged; damaged files that were read
            before are also in `files`.
        omitted: The number of run files beyond the limit.
        omitted_alive: The number of omitted files whose writers were alive at the last check.
        is_short: Whether files could not be opened because too many files are open.
        is_part: Whether the directory contains more names than one reading lists.
    """

    files: tuple[SeenFile, ...]
    incompatible: int
    omitted: int
    is_part: bool = False
    omitted_alive: int = 0
    is_short: bool = False
