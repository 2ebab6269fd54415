"""Read a run directory: the run files that trainers wrote, and whether the trainers are alive.

Any user may write to a run directory, so its contents are not trusted. A file that is not a
complete run file of a known version is counted but not modified. If there are too many files, files
are chosen from each user in turn, as the module `owners` describes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.runfile import RunFileError
from trainvitals.sources.runs.candidates import NameLister, choose_surplus, order_candidates
from trainvitals.sources.runs.discarding import (
    discard_dead,
    discard_notes,
    discard_old,
    discard_omitted,
)
from trainvitals.sources.runs.liveness import Host, read_host
from trainvitals.sources.runs.oomkills import OomKills
from trainvitals.sources.runs.owners import Users, is_trusted
from trainvitals.sources.runs.rankfile import FileKey, RankFile, open_rank_file
from trainvitals.sources.runs.seen_files import DirectoryReading, SeenFile

_FOLDER_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
# A directory that changed more recently than this may have changed again within the same tick of
# the file system's clock.
_TICK_SECONDS = 1.0
# A user who is not trusted may have one half of the processes that are followed.
_WATCHED_SHARES = 2
# The number of new files that are opened before files beyond the limit are closed.
_BATCH = 128
# Errors caused by a lack of file descriptors or memory, not by the file.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that apply when a run directory is read.

    Attributes:
        files: The maximum number of run files that are read. Files are chosen from each user in
            turn; for each user, the files of living ranks come first, then the newest files.
        watched: The maximum number of ranks whose process is followed until the process ends; the
            limit for one user who is not trusted is half of this number.
        names: The maximum number of file names that are listed per reading; later readings list the
            remaining names.
        new: The maximum number of run files that are opened per reading; later readings open the
            remaining files. Users with write access may create thousands of run files repeatedly.
        unlisted_seconds: The time, in seconds, for which a rank whose file was deleted is reported
            after the rank's end.
        dead_seconds: The time, in seconds, for which a run file is kept after the rank's end.
        discard_seconds: The interval, in seconds, at which files are discarded.
        review_seconds: The interval, in seconds, at which files beyond the limit are compared again
            with the open files.
    """

    files: int = 256
    watched: int = 128
    names: int = 4096
    new: int = 512
    unlisted_seconds: float = 900.0
    dead_seconds: float = 86400.0
    discard_seconds: float = 60.0
    review_seconds: float = 10.0


class RunDirectory:
    """Reads the run files of one directory repeatedly; a missing directory counts as empty.

    Args:
        folder: The path of the directory, or the descriptor of an open directory; the descriptor is
            closed with this object.
        path: The path of the directory if `folder` is a descriptor.
        limits: The limits on reading the directory; None for the default limits.
        host: The machine on which the trainers run; None for this machine.
        users: The users whose run files are counted.
    """

    def __init__(
        self,
        folder: Path | int,
        *,
        path: Path | None = None,
        limits: Limits | None = None,
        host: Host | None = None,
        users: Users = Users(),  # noqa: B008 - immutable
    ) -> None:
        self._users = users
        self._folder = folder
        self._path = folder if isinstance(folder, Path) else path or Path(f"/dev/fd/{folder}")
        self._limits = limits or Limits()
        self._host = host or read_host()
        self._oom_kills = OomKills()
        self._files: dict[FileKey, RankFile] = {}
        self._refused: set[tuple[str, int]] = set()
        self._ignored: set[tuple[str, int]] = set()
        # Name and inode of each file beyond the limit, and whether its writer was alive.
        self._omitted: dict[tuple[str, int], bool] = {}
        self._reviewed_time = -float("inf")
        self._is_short = False
        self._notes: tuple[str, ...] = ()
        self._passing: tuple[str, ...] = ()
        self._unread = 0
        self._is_part = False
        self._names = NameLister(self._limits.names)
        self._most_files = self._limits.files
        self._seen: tuple[int, int, int] | None = None
        self._discarded_time = -float("inf")
        self._is_detached = False

    @property
    def path(self) -> Path:
        """The path of the run directory."""
        return self._path

    @property
    def has_no_living_rank(self) -> bool:
        """Whether no rank in the directory was alive at the last reading."""
        return not any(file.liveness.is_alive for file in self._files.values())

    def read(self, now: float, *, is_searched: bool = True) -> DirectoryReading:
        """Read the run files in the directory.

        Args:
            now: The current time, in Unix seconds.
            is_searched: Whether to also list the directory in order to find new and deleted files.

        Raises:
            SourceError: The directory exists but cannot be read.
        """
        self._oom_kills.begin()
        if is_searched:
            self._search(now)
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
                    file.made_time,
                )
            )
        return DirectoryReading(
            tuple(seen),
            damaged + len(self._refused),
            len(self._omitted) + self._unread,
            self._is_part,
            sum(self._omitted.values()),
            self._is_short,
        )

    def allow(self, files: int) -> None:
        """Set the maximum number of run files that are read from this directory.

        The number is this directory's share of a limit for several directories.
        """
        if files > self._most_files and self._omitted:
            self._seen = None
        self._most_files = files
        self._close_surplus()

    def detach(self) -> None:
        """Close the directory after the removal of its container, but keep the run files open."""
        self._is_detached = True
        self._names.start_over()
        if isinstance(self._folder, int) and self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def discard(self, now: float) -> None:
        """Unlink the run files of ranks that ended long ago, and of ended ranks beyond the limit.

        A rank ended long ago if it ended at least `Limits.dead_seconds` ago. The module
        `discarding` describes which files are kept.

        Args:
            now: The current time, in Unix seconds.
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
            limits = self._limits
            oldest = now - limits.dead_seconds
            discard_dead(folder, self._files.values(), now, oldest)
            omitted = list(self._omitted)
            first = int(now) % max(1, len(omitted))  # earlier files may not be removable
            chosen = [*omitted[first:], *omitted[:first]][: limits.new]
            discard_omitted(folder, chosen, now, lambda name: self._open_file(name, folder))
            if isinstance(self._folder, Path):
                discard_notes(folder, self._path, self._notes, oldest, most=limits.files)
                discard_old(folder, self._passing, oldest)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Close the run directory and all of its run files."""
        for key in list(self._files):
            self._drop(key)
        self._oom_kills.close()
        self._seen = None
        self.detach()

    def _is_over(self, file: RankFile, now: float, *, was_alive: bool) -> bool:
        """Return whether the rank of a deleted run file no longer needs to be reported."""
        if file.is_listed or file.liveness.is_alive or self._is_detached:
            return False
        if was_alive:  # the rank ended since the last reading, so the end is not reported yet
            file.ended_unlisted_time = now
        ended = file.ended_unlisted_time
        return ended is None or not 0 <= now - ended < self._limits.unlisted_seconds

    def _search(self, now: float) -> None:
        """List the run directory if it has changed since the last listing."""
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
        # The owner may set the mtime to any time, but not the ctime.
        seen = (status.st_dev, status.st_ino, status.st_ctime_ns)
        is_review = bool(self._omitted) and self._is_review_due(now)
        if seen == self._seen and not is_review:
            return
        try:
            folder = self._open()
        except OSError as error:
            self._lose(error)
            return
        try:
            is_whole = self._scan(folder, is_review=is_review)
        finally:
            os.close(folder)
        self._seen = seen if is_whole and now - status.st_ctime > _TICK_SECONDS else None

    def _open(self) -> int:
        if isinstance(self._folder, int):
            return os.dup(self._folder)
        return os.open(self._folder, _FOLDER_FLAGS)

    def _lose(self, error: OSError) -> None:
        """Record that the run directory cannot be opened, but keep the open run files.

        If the directory was removed, living ranks still use the unlinked files.

        Raises:
            SourceError: The directory exists but cannot be opened.
        """
        for file in self._files.values():
            file.is_listed = False
        self._seen = None
        self._refused.clear()
        self._ignored.clear()
        self._omitted.clear()
        self._is_short = False
        self._unread = 0
        self._is_part = False
        self._names.start_over()
        self._notes = self._passing = ()
        if not isinstance(error, FileNotFoundError):
            raise SourceError(
                f"cannot read the run directory {self._path}: {error.strerror}; "
                "run as a user that may read it, or set --run-dir to another"
            ) from error

    def _is_review_due(self, now: float) -> bool:
        if abs(now - self._reviewed_time) < self._limits.review_seconds:
            return False
        self._reviewed_time = now
        return True

    def _scan(self, folder: int, *, is_review: bool) -> bool:
        """Add the existing run files; return False if some of them are left for the next scan.

        Args:
            folder: The open directory.
            is_review: Whether to compare the files beyond the limit with the open files again,
                since ranks may have ended.
        """
        listing = self._names.list(folder)
        self._is_part, self._notes = listing.is_part, listing.notes
        self._passing = listing.passing
        keys = {(entry.name, entry.inode()) for entry in listing.runs}
        self._refused &= keys
        self._ignored &= keys
        self._keep_omitted(keys, folder if listing.is_part else None)
        self._is_short = False
        for file in self._files.values():
            file.is_listed = listing.is_part and file.is_in(folder)
        device = os.fstat(folder).st_dev  # another file system mounted here reuses inode numbers
        # A file with several names is counted once.
        unknown = {
            entry.inode(): entry
            for entry in listing.runs
            if not self._recognise(entry.name, FileKey(device, entry.inode()), is_review=is_review)
        }
        new, ignored = order_candidates(unknown.values(), self._users, folder=folder)
        self._ignored |= {(each.name, each.inode) for each in ignored}
        rest = new[self._limits.new :]
        self._unread = sum((each.name, each.inode) not in self._omitted for each in rest)
        del new[self._limits.new :]
        is_whole = not self._unread and not listing.is_part
        for at in range(0, len(new), _BATCH):
            for each in new[at : at + _BATCH]:
                is_whole &= self._admit(each.name, FileKey(device, each.inode), folder)
            self._close_surplus()
        return is_whole

    def _keep_omitted(self, listed: Container[tuple[str, int]], folder: int | None) -> None:
        """Forget omitted files that are not listed, except existing files of living ranks.

        Args:
            listed: The name and inode of each listed file.
            folder: The open directory if only a part of the directory is listed; None if the whole
                directory is listed.
        """
        kept = {who: alive for who, alive in self._omitted.items() if who in listed}
        if folder is not None:
            living = [who for who, alive in self._omitted.items() if alive and who not in listed]
            kept |= {
                (name, inode): True
                for name, inode in living[: self._limits.names]
                if _read_inode(name, folder) == inode
            }
        self._omitted = kept

    def _recognise(self, name: str, key: FileKey, *, is_review: bool) -> bool:
        """Return whether a run file is already known, under any name, and need not be opened."""
        file = self._files.get(key)
        if file is not None and (file.is_open or file.path.name == name):
            file.path = self._path / name
            file.is_listed = True
            return True
        if file is not None:  # another file has reused the inode number
            self._drop(key)
        has_room = len(self._files) < self._most_files
        who = (name, key.inode)
        if who in self._refused or who in self._ignored:
            return True
        return who in self._omitted and not has_room and not is_review

    def _admit(self, name: str, key: FileKey, folder: int) -> bool:
        """Open and add a run file; return False if there are too few descriptors or memory."""
        was_alive = self._omitted.pop((name, key.inode), False)
        try:
            file = self._open_file(name, folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in _SHORTAGES:
                self._refused.add((name, key.inode))
                return True
            self._omitted[name, key.inode] = was_alive
            self._is_short = True
            return False
        except RunFileError:
            self._refused.add((name, key.inode))
            return True
        if file.owner not in self._users:  # another file has its name now
            file.close()
            return True
        self._files[key] = file
        return True

    def _close_surplus(self) -> None:
        """Close the least important run files if the number of open files exceeds the limit."""
        for key, is_held in choose_surplus(self._files, self._most_files, self._users):
            file = self._files.pop(key)
            self._omitted[file.path.name, key.inode] = is_held
            file.close()

    def _open_file(self, name: str, folder: int) -> RankFile:
        return open_rank_file(
            self._path / name,
            folder=folder,
            host=self._host,
            oom_kills=self._oom_kills,
            may_watch=self._may_watch,
        )

    def _may_watch(self, user: int) -> bool:
        group = self._users.find_group
        owners = [group(file.owner) for file in self._files.values() if file.is_watching]
        share = self._limits.watched // (1 if is_trusted(user) else _WATCHED_SHARES)
        return len(owners) < self._limits.watched and owners.count(group(user)) < share

    def _drop(self, key: FileKey) -> None:
        self._files.pop(key).close()
        if self._omitted:  # there is room for an omitted file
            self._seen = None


def _read_inode(name: str, folder: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except OSError:
        return None
