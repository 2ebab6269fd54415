"""The result of reading one run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainvitals.runfile import Record
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.rankfile import FileKey


@dataclass(frozen=True, slots=True)
class SeenFile:
    """The state of one run file at one reading of its directory.

    Attributes:
        path: The path of the file, which may have been deleted.
        key: The identity of the file, which is the same under every path of the file.
        record: The last complete record that was read from the file. The record may be older than
            the file's contents if `is_current` is False.
        liveness: The liveness of the file's writer.
        is_current: Whether this reading found complete records in the file.
        can_be_noted: Whether a note about how the process ended may be read and written in the
            file's directory. The value is False if the file was deleted. The value is also False if
            the directory is in a container, because a path in a container could lead root to any
            place on the host.
        owner: The ID of the user who owns the file, regardless of the file's contents.
        made_time: The time when the file was created, according to the kernel, in Unix seconds.
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
    """The result of one reading of a run directory.

    Attributes:
        files: The run files, in the order in which the files were first found.
        incompatible: The number of files with the name of a run file that are not run files, have
            an unknown version, cannot be opened, or are damaged. If a damaged file was read before
            the damage, the file is also in `files`.
        omitted: The number of run files that were not read because of the limit on run files.
        omitted_alive: The number of run files that were not read and whose writers were alive at
            the last check.
        is_short: Whether some run files could not be opened because too many files are open.
        is_part: Whether the directory contains more names than one reading lists.
    """

    files: tuple[SeenFile, ...]
    incompatible: int
    omitted: int
    is_part: bool = False
    omitted_alive: int = 0
    is_short: bool = False
