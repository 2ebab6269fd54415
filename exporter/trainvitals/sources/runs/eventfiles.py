"""Follow training runs that write TensorBoard event files.

A run is a directory that contains `events.out.tfevents.*` files, below a configured directory. When
a run is resumed, a new file is created in the run's directory; the newest file, according to the
time in its name, is followed. Directories such as `train` and `validation`, in which Keras stores
the two parts of a run, belong to the run of the parent directory. Directories such as `loss_val`
next to a run's own files, which `add_scalars` creates, also belong to that run.

Writers flush after ten events or two minutes, so the values that are read may be up to two minutes
old.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.foreign_numbers import read_time
from trainvitals.sources.runs.discovery import (
    FoundFile,
    Search,
    explain_unreadable,
    name_runs,
    split_path,
)
from trainvitals.sources.runs.followed_file import FollowedFile, ReadBudget
from trainvitals.sources.runs.owners import Users, order_owners, take_turns
from trainvitals.sources.runs.scalars import FoundRun, RunScalars
from trainvitals.sources.runs.tfrecords import MOST_RECORD_BYTES, RecordParser
from trainvitals.sources.runs.vocabulary import Split, find_split

_PATTERN = "events.out.tfevents.*"
_PIECE_BYTES = 1 << 18
_MOST_BYTES = 1 << 24
# `add_scalars` creates a directory with an event file for each line of the chart.
_MOST_FOLDERS, _MOST_KEPT_OPEN = 64, 4
_LAST_TAG = "train/train_runtime"  # logged by the Hugging Face Trainer at the end
_HALVES = ("train", "validation", "val", "eval", "test")


@dataclass(frozen=True, slots=True)
class _Folder:
    """A directory that contains event files.

    Attributes:
        path: The path of the directory.
        logdir: The configured directory that contains the directory.
        newest: The newest event file in the directory.
    """

    path: str
    logdir: str
    newest: FoundFile


@dataclass(slots=True)
class _Stream:
    """The newest event file in one directory, which is followed, and its possible successor."""

    file: FollowedFile
    split: Split
    next_path: str | None = None
    complaint: str | None = None
    damaged: int = 0


@dataclass(slots=True)
class _Run:
    """A training run whose event files are in one or more directories."""

    name: str = ""
    streams: dict[str, _Stream] = field(default_factory=dict)
    scalars: RunScalars = field(default_factory=RunScalars)
    started_time: float | None = None
    last_time: float = 0.0


class EventFileSource:
    """Reads the scalars in TensorBoard event files below the configured directories.

    Args:
        logdirs: The configured directories; every search looks again for directories that do not
            exist yet.
        clock: A function that returns the current time, in Unix seconds.
        monotonic: A monotonic clock, in seconds, to which deadlines refer.
        most_runs: The maximum number of runs to follow; the latest runs are chosen.
        forget_after_seconds: The number of seconds after the last write to a run's files from which
            the run is ignored.
        users: The users whose files are read; runs are chosen from each user in turn.

    Attributes:
        omitted: The number of runs that were left out of the last reading because of `most_runs`,
            plus the number of directories beyond the limit per run.
        complaint: One line with a file that could not be read, the reason and the remedy; None if
            all files could be read.
    """

    def __init__(
        self,
        logdirs: Sequence[Path],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        most_runs: int = 16,
        forget_after_seconds: float = 86_400.0,
        users: Users = Users(),  # noqa: B008 - immutable
    ) -> None:
        self._users = users
        self.omitted = 0
        self.complaint: str | None = None
        self._logdirs = tuple(map(_expand, logdirs))
        self._clock = clock
        self._monotonic = monotonic
        self._most_runs = most_runs
        self._forget_after_seconds = forget_after_seconds
        self._parser = RecordParser()
        self._runs: dict[str, _Run] = {}
        self._budget: ReadBudget[_Run] = ReadBudget(monotonic=monotonic)
        self._search_complaint: str | None = None

    def read(self, deadline: float) -> tuple[FoundRun, ...]:
        """Read new records from the event files until all are read or the time is up.

        Args:
            deadline: The monotonic time by which the method returns; the next call reads the
                remaining records.

        Returns:
            The runs from which at least one scalar was read.
        """
        if self._budget.is_search_due():
            with self._budget.searching():
                self._find_runs()
        for run in self._budget.take(list(self._runs.values()), deadline):
            self._follow(run)
        streams = [stream for run in self._runs.values() for stream in run.streams.values()]
        complaints = [self._search_complaint, *(stream.complaint for stream in streams)]
        self.complaint = next(filter(None, complaints), None)
        return tuple(
            run.scalars.describe(
                run.name,
                "tensorboard",
                _find_latest(run).path,
                started_time=run.started_time,
                last_time=run.last_time,
            )
            for run in self._runs.values()
            if not run.scalars.is_empty
        )

    def use_patterns(self, patterns: Sequence[object]) -> None:
        """Do nothing, because line patterns do not apply to event files."""

    def close(self) -> None:
        """Close all event files."""
        for run in self._runs.values():
            _close(run)
        self._runs = {}

    def _find_runs(self) -> None:
        search = Search(users=self._users)
        folders: dict[str, _Folder] = {}
        for logdir in self._logdirs:
            for folder in _find_folders(search, logdir):
                folders.setdefault(os.path.realpath(folder.path), folder)
        self._search_complaint = search.complaint
        oldest = self._clock() - self._forget_after_seconds
        recent = [f for f in folders.values() if f.newest.modified_time >= oldest]
        by_run: dict[str, list[_Folder]] = {}
        with_files = {folder.path for folder in folders.values()}
        for folder in recent:
            by_run.setdefault(_find_run_folder(folder, with_files), []).append(folder)
        latest = sorted(by_run, key=lambda path: _age_key(by_run[path]), reverse=True)
        self.omitted = max(0, len(latest) - self._most_runs)
        self.omitted += sum(_cut_folders(path, of_run) for path, of_run in by_run.items())

        def owner(path: str) -> int:
            return _find_owner(by_run[path])

        def group(path: str) -> int:
            return self._users.find_group(owner(path))

        kept = take_turns(order_owners(latest, owner), group)[: self._most_runs]
        for path in self._runs.keys() - set(kept):
            _close(self._runs.pop(path))
        for path in kept:
            self._update(self._runs.setdefault(path, _Run()), by_run[path], path)
        self._name({path: by_run[path][0].logdir for path in kept})

    def _name(self, logdirs: Mapping[str, str]) -> None:
        """Name new runs after their paths below the configured directory.

        A run in the configured directory itself is named after that directory.

        Args:
            logdirs: Each run's configured directory, by the run's path.
        """
        components = [split_path(path) for path in logdirs]
        fewest = [
            max(1, len(parts) - len(split_path(logdir)))
            for parts, logdir in zip(components, logdirs.values(), strict=True)
        ]
        runs = [self._runs[path] for path in logdirs]
        names = name_runs(components, fewest, [run.name or None for run in runs])
        for run, name in zip(runs, names, strict=True):
            run.name = name

    def _update(self, run: _Run, folders: Sequence[_Folder], run_path: str) -> None:
        """Update the event files that are followed for a run."""
        gone = run.streams.keys() - {folder.path for folder in folders}
        for path in gone:
            run.streams.pop(path).file.close()
        for folder in folders:
            path = folder.newest.path
            stream = run.streams.get(folder.path)
            if stream is None:
                split = find_split(os.path.basename(folder.path))  # noqa: PTH119 - hot
                run.streams[folder.path] = _Stream(
                    FollowedFile(path), split if folder.path != run_path else ""
                )
            elif stream.file.path != path:
                stream.next_path = path

    def _follow(self, run: _Run) -> None:
        """Read new records from a run's event files, as far as the time allows."""
        for count, stream in enumerate(run.streams.values()):
            if count and self._budget.is_over():
                return
            self._catch_up(run, stream)
            if count >= _MOST_KEPT_OPEN:
                stream.file.close()

    def _catch_up(self, run: _Run, stream: _Stream) -> None:
        stream.complaint = None
        try:
            at_end = self._read_on(run, stream)
        except OSError as error:
            at_end = True
            if not isinstance(error, FileNotFoundError):
                stream.complaint = explain_unreadable(stream.file.path, error)
        if at_end and stream.next_path is not None:
            stream.file.close()
            stream.file = FollowedFile(stream.next_path)
            stream.next_path = None
            run.scalars.resume()
            self._catch_up(run, stream)

    def _read_on(self, run: _Run, stream: _Stream) -> bool:
        """Parse complete records of an event file; return whether no further record is complete."""
        file = stream.file
        end = file.offset + _MOST_BYTES
        want_bytes = _PIECE_BYTES
        while True:
            data, restarted = file.peek(want_bytes)
            if restarted:
                run.scalars = RunScalars()
            records = self._parser.parse(data)
            self._record(run, stream.split, records.scalars)
            file.advance(data[: records.length_bytes])
            stream.damaged += records.damaged
            if records.then == "garbage":
                stream.complaint = (
                    f"{file.path} is damaged at byte {file.offset}, so the rest is not read; "
                    "restart its writer, or remove it"
                )
                return True
            if records.then == "large":
                if file.offset + records.large_bytes > file.size:
                    return True
                file.skip(records.large_bytes)
            elif len(data) < want_bytes:
                return True
            if self._budget.is_over() or file.offset >= end:
                return False
            is_cut = not records.length_bytes and records.then == "part"
            want_bytes = _PIECE_BYTES + (MOST_RECORD_BYTES if is_cut else 0)

    def _record(
        self, run: _Run, split: Split, scalars: list[tuple[float, int, str, float]]
    ) -> None:
        record = run.scalars.record_event
        for wall_time, step, tag, value in scalars:
            record(tag, value, split, step, wall_time)
            if tag == _LAST_TAG:
                run.scalars.is_finished = True
        times = [seen for scalar in scalars if (seen := read_time(scalar[0])) is not None]
        if times:
            run.started_time = min(times[0], run.started_time or times[0])
            run.last_time = max(run.last_time, times[-1])


def _expand(logdir: Path) -> str:
    return os.path.expanduser(logdir)  # noqa: PTH111 - leaves an unknown user alone


def _find_folders(search: Search, logdir: str) -> list[_Folder]:
    newest: dict[str, FoundFile] = {}
    for file in search.find(f"{logdir}/**/{_PATTERN}"):
        folder, name = os.path.split(file.path)
        if name.endswith(".profile-empty"):
            continue
        other = newest.get(folder)
        if other is None or _creation_key(file) > _creation_key(other):
            newest[folder] = file
    return [_Folder(path, logdir, file) for path, file in newest.items()]


def _creation_key(file: FoundFile) -> tuple[int, float, str]:
    """Return an event file's sort key: the second in the file name, then the modification time."""
    name = os.path.basename(file.path).split(".")  # noqa: PTH119 - hot
    second = name[3] if len(name) > 3 else ""  # noqa: PLR2004 - events.out.tfevents.SECOND
    created = int(second) if second.isascii() and second.isdigit() and len(second) < 12 else 0  # noqa: PLR2004
    return created, file.modified_time, file.path


def _find_run_folder(folder: _Folder, with_files: set[str]) -> str:
    """Return the directory of the run to which a directory belongs."""
    around, name = os.path.split(folder.path)
    if folder.path == folder.logdir or not find_split(name):
        return folder.path
    beside = {os.path.join(around, half) for half in _HALVES}  # noqa: PTH118 - paths are strings
    has_other_half = folder.path in beside and len(beside & with_files) > 1
    return around if around in with_files or has_other_half else folder.path


def _cut_folders(run_path: str, folders: list[_Folder]) -> int:
    """Keep a run's own directory and the latest other directories; return the number removed."""
    folders.sort(key=lambda f: (f.path == run_path, f.newest.modified_time), reverse=True)
    left_out = len(folders[_MOST_FOLDERS:])
    del folders[_MOST_FOLDERS:]
    return left_out


def _age_key(folders: list[_Folder]) -> float:
    return max(folder.newest.modified_time for folder in folders)


def _find_owner(folders: list[_Folder]) -> int:
    """Return the user ID of the owner of a run's newest event file."""
    return max(folders, key=lambda folder: folder.newest.modified_time).newest.owner


def _find_latest(run: _Run) -> FollowedFile:
    return max((stream.file for stream in run.streams.values()), key=lambda f: f.modified_time)


def _close(run: _Run) -> None:
    for stream in run.streams.values():
        stream.file.close()
