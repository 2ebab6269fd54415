"""The reading of one run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainvitals.runfile import Record
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.rankfile import FileKey


@dataclass(frozen=True, slots=True)
class SeenFile:
    """One run file.

    Attributes:
        path: The path of the file, which may be deleted.
        key: The identity of the file, which is the same in every directory.
        record: Its record; while `is_current` is False, the last one that was read.
        liveness: Whether its writer lives.
        is_current: Whether its records are complete now.
        can_be_noted: Whether a note on its end may be read and written in the same directory. It
            may not if the file was deleted, nor in a container, where a path could lead root to any
            place of the host.
        owner: The user who owns it, regardless of the file's content.
        made_time: When it was made, as the kernel tells, Unix seconds.
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
    """The reading of a run directory.

    Attributes:
        files: The run files, in the order in which they were first seen.
        incompatible: The number of files with the name of a run file that are not run files, have
            an unknown version, cannot be opened, or are damaged; damaged ones that were read before
            are among `files` too.
        omitted: The number of run files beyond the limit.
        omitted_alive: Those of them whose writers lived at the last look.
        is_short: Whether files could not be opened because too many are open.
        is_part: Whether there are more names than are looked at in one reading.
    """

    files: tuple[SeenFile, ...]
    incompatible: int
    omitted: int
    is_part: bool = False
    omitted_alive: int = 0
    is_short: bool = False
