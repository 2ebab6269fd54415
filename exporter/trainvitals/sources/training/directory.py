"""A run directory: the run files that trainers left there, and whether the trainers live.

Anybody may write into a run directory, so nothing in it is believed: what is no whole run file of
a version that is known here is counted and left alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.runfile import SUFFIX, Record, RunFileError
from trainvitals.sources.training.endings import SUFFIX as NOTE_SUFFIX
from trainvitals.sources.training.endings import read_ending
from trainvitals.sources.training.liveness import Host, Liveness, read_host
from trainvitals.sources.training.oomkills import OomKills
from trainvitals.sources.training.rankfile import FileKey, RankFile, open_rank_file

_FOLDER_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
# A directory that changed less than this ago may have changed once more within the same tick of
# the file system's clock.
_TICK_SECONDS = 1.0
# New files are opened so many at a time, before those that are too many are let go.
_BATCH = 128
# We are short of descriptors or memory, which says nothing of the file.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a run directory is looked at.

    Attributes:
        files: Run files; those of living ranks first, then the newest.
        watched: Ranks whose process is followed to its end.
        names: Names of any kind; what comes after is not seen.
        new: Run files that are opened in one reading; the others have their turn the next time. Who
            may write in the directory may make thousands of them, again and again.
        unlisted_seconds: How long after its end a rank is told of whose file was deleted under it.
        dead_seconds: How long after the end of a run its file is discarded.
        discard_seconds: How often files are discarded.
    """

    files: int = 256
    watched: int = 128
    names: int = 4096
    new: int = 512
    unlisted_seconds: float = 900.0
    dead_seconds: float = 86400.0
    discard_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class SeenFile:
    """One run file.

    Attributes:
        path: Where it is, or was.
        key: Which file it is; the same file has the same key in whatever directory it is seen.
        record: What it says; while `is_current` is False, what it said last.
        liveness: Whether its writer lives.
        is_current: Whether its records are whole now.
        can_be_noted: Whether a note on its end may be read and written beside it. Not where the
            file was deleted, nor in a container, where a path could lead us, who are root, to any
            place of the host.
        owner: The user who owns it, whatever it says itself.
    """

    path: Path
    key: FileKey
    record: Record
    liveness: Liveness
    is_current: bool
    can_be_noted: bool = True
    owner: int = 0


@dataclass(frozen=True, slots=True)
class DirectoryReading:
    """A run directory at one moment.

    Attributes:
        files: The run files, in the order in which they were first seen.
        incompatible: How many files are no run files although they are called so, of a version
            that is not known here, not to be opened, or damaged; damaged ones that were read
            before are among `files` too.
        omitted: How many run files there are beyond the limit.
        is_cut: There are more names than are looked at.
    """

    files: tuple[SeenFile, ...]
    incompatible: int
    omitted: int
    is_cut: bool = False


class RunDirectory:
    """Reads the run files of one directory, again and again; one that is missing is empty.

    Args:
        folder: The directory; or the descriptor of an open one, which then is ours to close.
        path: What to call the directory, where `folder` is a descriptor.
        limits: How much is looked at.
        host: The machine; the one we run on when None.
    """

    def __init__(
        self,
        folder: Path | int,
        *,
        path: Path | None = None,
        limits: Limits | None = None,
        host: Host | None = None,
    ) -> None:
        self._folder = folder
        self._path = folder if isinstance(folder, Path) else path or Path(f"/dev/fd/{folder}")
        self._limits = limits or Limits()
        self._host = host or read_host()
        self._oom_kills = OomKills()
        self._files: dict[FileKey, RankFile] = {}
        self._refused: set[tuple[str, int]] = set()
        self._omitted: set[tuple[str, int]] = set()
        self._notes: tuple[str, ...] = ()
        self._unfinished: tuple[str, ...] = ()
        self._unread = 0
        self._is_cut = False
        self._most_files = self._limits.files
        self._seen: tuple[int, int, int] | None = None
        self._discarded_time = -float("inf")
        self._is_detached = False

    @property
    def path(self) -> Path:
        """What the directory is called."""
        return self._path

    @property
    def is_deserted(self) -> bool:
        """Whether no rank was alive at the last reading."""
        return not any(file.liveness.is_alive for file in self._files.values())

    def read(self, now: float, *, is_searched: bool = True) -> DirectoryReading:
        """Read the directory.

        Args:
            now: Unix seconds.
            is_searched: Whether to look for files that have come or gone, too.

        Raises:
            SourceError: The directory is there but cannot be read.
        """
        self._oom_kills.begin()
        if is_searched:
            self._look(now)
        damaged = 0
        is_ours = isinstance(self._folder, Path)
        seen: list[SeenFile] = []
        for key, file in list(self._files.items()):
            was_alive = file.liveness.is_alive
            file.read(now)
            if self._is_over(file, now, was_alive=was_alive):
                self._drop(key)
                continue
            if not file.is_current:
                damaged += 1
            seen.append(
                SeenFile(
                    file.path,
                    file.key,
                    file.record,
                    file.liveness,
                    file.is_current,
                    is_ours and file.is_listed,
                    file.owner,
                )
            )
        return DirectoryReading(
            tuple(seen),
            damaged + len(self._refused),
            len(self._omitted) + self._unread,
            self._is_cut,
        )

    def allow(self, files: int) -> None:
        """Say how many run files it may hold from now on, where several directories share."""
        if files > self._most_files and self._omitted:
            self._seen = None
        self._most_files = files
        self._leave_best()

    def detach(self) -> None:
        """Let go of a directory that vanished with its container; its ranks stay readable."""
        self._is_detached = True
        if isinstance(self._folder, int) and self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def discard(self, now: float) -> None:
        """Unlink run files that nobody needs: dead for a day, or dead and beyond the limit.

        What this user may not unlink stays. Nothing is ever cut short, and nothing of a living
        rank, or that is no run file or its note, is touched.

        Args:
            now: Unix seconds.
        """
        is_early = abs(now - self._discarded_time) < self._limits.discard_seconds
        if is_early or self._is_detached:
            return
        self._discarded_time = now
        try:
            folder = self._open()
        except OSError:
            return
        try:
            self._discard_dead(folder, now)
            self._discard_omitted(folder, now)
            if isinstance(self._folder, Path):
                self._discard_notes(folder, now)
                self._discard_unfinished(folder, now)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Close everything."""
        for key in list(self._files):
            self._drop(key)
        self._oom_kills.close()
        self._seen = None
        self.detach()

    def _is_over(self, file: RankFile, now: float, *, was_alive: bool) -> bool:
        """Tell whether there is nothing more to tell of a file that the directory no longer has."""
        if file.is_listed or file.liveness.is_alive or self._is_detached:
            return False
        if was_alive:  # it died since it was read, and nobody has heard of it yet
            file.ended_unlisted_time = now
        ended = file.ended_unlisted_time
        return ended is None or not 0 <= now - ended < self._limits.unlisted_seconds

    def _look(self, now: float) -> None:
        """See which files there are, where anything changed since the last time."""
        if self._is_detached:
            return
        if any(not file.is_still_own() for file in self._files.values()):
            self._seen = None
            for key, file in list(self._files.items()):
                if not file.is_still_own():
                    self._drop(key)
        try:
            status = os.stat(self._folder)  # noqa: PTH116 - may be a descriptor
            if not status.st_nlink:
                raise FileNotFoundError
        except OSError as error:
            self._lose(error)
            return
        seen = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if seen == self._seen:
            return
        try:
            folder = self._open()
        except OSError as error:
            self._lose(error)
            return
        try:
            is_whole = self._scan(folder)
        finally:
            os.close(folder)
        self._seen = seen if is_whole and now - status.st_mtime > _TICK_SECONDS else None

    def _open(self) -> int:
        if isinstance(self._folder, int):
            return os.dup(self._folder)
        return os.open(self._folder, _FOLDER_FLAGS)

    def _lose(self, error: OSError) -> None:
        """Take note that the directory is not there; living ranks go on in their unlinked files."""
        for file in self._files.values():
            file.is_listed = False
        self._seen = None
        self._refused.clear()
        self._omitted.clear()
        self._unread = 0
        self._is_cut = False
        self._notes = self._unfinished = ()
        if not isinstance(error, FileNotFoundError):
            raise SourceError(
                f"cannot read the run directory {self._path}: {error.strerror}; "
                "run as a user that may read it, or set --run-dir to another"
            ) from error

    def _scan(self, folder: int) -> bool:
        """See which files there are; False where some could not be opened for now."""
        with os.scandir(folder) as entries:
            found = list(islice(entries, self._limits.names + 1))
        self._is_cut = len(found) > self._limits.names
        del found[self._limits.names :]
        self._notes = tuple(
            entry.name for entry in found if entry.name.endswith(SUFFIX + NOTE_SUFFIX)
        )
        self._unfinished = tuple(entry.name for entry in found if _is_unfinished(entry.name))
        runs = [
            entry
            for entry in found
            if entry.name.endswith(SUFFIX) and not entry.name.startswith(".")
        ]
        keys = {(entry.name, entry.inode()) for entry in runs}
        self._refused &= keys
        self._omitted &= keys
        for file in self._files.values():
            file.is_listed = False
        device = os.fstat(folder).st_dev  # another one may be mounted here, whose numbers recur
        new = [
            entry
            for entry in runs
            if not self._recognise(entry.name, FileKey(device, entry.inode()))
        ]
        new.sort(key=_read_mtime, reverse=True)
        self._unread = len(new[self._limits.new :])
        del new[self._limits.new :]
        is_whole = not self._unread
        for at in range(0, len(new), _BATCH):
            for entry in new[at : at + _BATCH]:
                is_whole &= self._admit(entry.name, FileKey(device, entry.inode()), folder)
            self._leave_best()
        return is_whole

    def _recognise(self, name: str, key: FileKey) -> bool:
        """Tell whether a file is known already, under whatever name."""
        file = self._files.get(key)
        if file is not None and (file.is_open or file.path.name == name):
            file.path = self._path / name
            file.is_listed = True
            return True
        if file is not None:  # another file has got the number of one that is gone
            self._drop(key)
        has_room = len(self._files) < self._most_files
        who = (name, key.inode)
        return who in self._refused or (not has_room and who in self._omitted)

    def _admit(self, name: str, key: FileKey, folder: int) -> bool:
        """Take up a file; False where it could not be opened for now."""
        self._omitted.discard((name, key.inode))
        try:
            file = self._open_file(name, folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            is_short = error.errno in _SHORTAGES
            (self._omitted if is_short else self._refused).add((name, key.inode))
            return not is_short
        except RunFileError:
            self._refused.add((name, key.inode))
            return True
        self._files[key] = file
        return True

    def _leave_best(self) -> None:
        """Let go of the files that are worth least, where there are more than the limit."""
        surplus = len(self._files) - self._most_files
        if surplus <= 0:
            return
        ordered = sorted(self._files, key=lambda key: self._files[key].standing)
        for key in ordered[:surplus]:
            file = self._files.pop(key)
            self._omitted.add((file.path.name, key.inode))
            file.close()

    def _open_file(self, name: str, folder: int) -> RankFile:
        return open_rank_file(
            self._path / name,
            folder=folder,
            host=self._host,
            oom_kills=self._oom_kills,
            may_watch=self._may_watch,
        )

    def _may_watch(self) -> bool:
        watched = sum(file.is_watching for file in self._files.values())
        return watched < self._limits.watched

    def _drop(self, key: FileKey) -> None:
        self._files.pop(key).close()
        if self._omitted:  # there is room for one of them
            self._seen = None

    def _discard_dead(self, folder: int, now: float) -> None:
        for key, file in list(self._files.items()):
            is_dead = not file.liveness.is_alive and file.liveness.evidence != "age"
            if is_dead and now - file.ended_time(now) > self._limits.dead_seconds:
                _unlink(folder, file.path.name, key.inode)

    def _discard_omitted(self, folder: int, now: float) -> None:
        omitted = list(self._omitted)
        first = int(now) % max(1, len(omitted))  # where none of the others may be discarded
        for name, inode in [*omitted[first:], *omitted[:first]][: self._limits.new]:
            with contextlib.suppress(OSError, RunFileError):
                file = self._open_file(name, folder)
                file.read(now)
                file.close()
                if not file.liveness.is_alive and file.liveness.evidence != "age":
                    _unlink(folder, name, inode)

    def _discard_notes(self, folder: int, now: float) -> None:
        """Unlink the notes of run files that are gone, a day after they were written.

        Whoever makes and unlinks run files must not make us fill the directory: beyond the limit of
        files the notes go at once.
        """
        left = self._limits.files
        for note in self._notes:
            with contextlib.suppress(OSError):
                run_file = note.removesuffix(NOTE_SUFFIX)
                if _exists(folder, run_file) or not read_ending(self._path / run_file):
                    continue
                if left and not self._is_old(folder, note, now):
                    left -= 1
                else:
                    os.unlink(note, dir_fd=folder)

    def _discard_unfinished(self, folder: int, now: float) -> None:
        """Unlink what those left who were killed while they made a run file or a note."""
        for name in self._unfinished:
            with contextlib.suppress(OSError):
                if self._is_old(folder, name, now):
                    os.unlink(name, dir_fd=folder)

    def _is_old(self, folder: int, name: str, now: float) -> bool:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return now - status.st_mtime > self._limits.dead_seconds


def _is_unfinished(name: str) -> bool:
    """Tell the temporary name of a run file (`.NAME.tmp`) or of a note (`.NAME.end.RANDOM`)."""
    stem, _, _ = name.rpartition(".")
    return name.startswith(".") and (
        name.endswith(f"{SUFFIX}.tmp") or stem.endswith(SUFFIX + NOTE_SUFFIX)
    )


def _read_mtime(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _unlink(folder: int, name: str, inode: int) -> None:
    """Unlink a run file and its note, where they are still what they were and we may."""
    with contextlib.suppress(OSError):
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino != inode:
            return
        os.unlink(name, dir_fd=folder)
        os.unlink(name + NOTE_SUFFIX, dir_fd=folder)
