"""Remove old run files, notes and temporary files from a run directory.

Files that this user is not permitted to unlink are kept. Files are never shortened, which would
kill their writer with SIGBUS. The files of living ranks and files of other kinds are not modified.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from trainvitals.runfile import SUFFIX, RunFileError
from trainvitals.sources.runs.endings import SUFFIX as NOTE_SUFFIX
from trainvitals.sources.runs.endings import read_ending
from trainvitals.sources.runs.launches import SUFFIX as LAUNCH_SUFFIX
from trainvitals.sources.runs.rankfile import RankFile, read_made_time


def discard_dead(folder: int, files: Iterable[RankFile], now: float, oldest: float) -> None:
    """Unlink the run files of ranks that ended before a given time.

    Args:
        folder: The open run directory.
        files: The run files in the directory.
        now: The current time, in Unix seconds.
        oldest: The time before which the ranks ended, in Unix seconds.
    """
    for file in files:
        if _is_dead(file) and file.ended_time(now) < oldest:
            _unlink(folder, file.path.name, file.key.inode)


def discard_omitted(
    folder: int,
    names: Iterable[tuple[str, int]],
    now: float,
    open_file: Callable[[str], RankFile],
) -> None:
    """Unlink the run files of dead ranks beyond the file limit, regardless of the files' age.

    Args:
        folder: The open run directory.
        names: The name and inode number of each run file beyond the limit.
        now: The current time, in Unix seconds.
        open_file: A function that opens a run file, given the file's name.
    """
    for name, inode in names:
        with contextlib.suppress(OSError, RunFileError):
            file = open_file(name)
            file.read(now)
            file.close()
            if _is_dead(file):
                _unlink(folder, name, inode)


def discard_notes(
    folder: int, path: Path, notes: Iterable[str], oldest: float, *, most: int
) -> None:
    """Unlink old notes whose run files were deleted.

    If the run files of more than `most` notes no longer exist, the excess notes are unlinked
    immediately, so that processes that create and unlink run files cannot fill the directory.

    Args:
        folder: The open run directory.
        path: The path of the run directory.
        notes: The names of the notes in the directory.
        oldest: The time before which old notes were written, in Unix seconds.
        most: The maximum number of notes whose run files no longer exist.
    """
    left = most
    for note in notes:
        with contextlib.suppress(OSError):
            run_file = note.removesuffix(NOTE_SUFFIX)
            if _exists(folder, run_file) or not read_ending(path / run_file):
                continue
            if left and not _is_older(folder, note, oldest):
                left -= 1
            else:
                os.unlink(note, dir_fd=folder)


def discard_old(folder: int, names: Iterable[str], oldest: float) -> None:
    """Remove old launch notes, and old temporary files from processes that were killed."""
    for name in names:
        with contextlib.suppress(OSError):
            if _is_older(folder, name, oldest):
                os.unlink(name, dir_fd=folder)


def is_unfinished(name: str) -> bool:
    """Return whether a file name belongs to a temporary file.

    Temporary files are named `.NAME.tmp` for a run file, and `.NAME.RANDOM` for a note.
    """
    stem, _, _ = name.rpartition(".")
    return name.startswith(".") and (
        name.endswith(f"{SUFFIX}.tmp") or stem.endswith((SUFFIX + NOTE_SUFFIX, LAUNCH_SUFFIX))
    )


def _is_dead(file: RankFile) -> bool:
    """Return whether a rank is dead according to more than the age of the rank's last record."""
    return not file.liveness.is_alive and file.liveness.evidence != "age"


def _is_older(folder: int, name: str, oldest: float) -> bool:
    return read_made_time(os.stat(name, dir_fd=folder, follow_symlinks=False)) < oldest


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _unlink(folder: int, name: str, inode: int) -> None:
    """Unlink a run file and its note, if permitted and if the name still belongs to the file."""
    with contextlib.suppress(OSError):
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino != inode:
            return
        os.unlink(name, dir_fd=folder)
        os.unlink(name + NOTE_SUFFIX, dir_fd=folder)
