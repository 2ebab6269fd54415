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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.foreign_numbers import read_time
from trainvitals.sources.runs.discovery import (
    FileState,
    FollowedState,
    FoundFile,
    Search,
    explain_unreadable,
    name_runs,
    split_path,
)
from trainvitals.sources.runs.event_folders import (
    EventFolder,
    add_held_folders,
    age_key,
    cut_folders,
    find_folders,
    find_owner,
    find_run_folder,
)
from trainvitals.sources.runs.file_source import FileSource
from trainvitals.sources.runs.followed_file import FollowedFile
from trainvitals.sources.runs.held_runs import mark_held
from trainvitals.sources.runs.owners import Users, order_owners, take_turns
from trainvitals.sources.runs.scalars import FoundRun, RunScalars
from trainvitals.sources.runs.tfrecords import MOST_RECORD_BYTES, RecordParser
from trainvitals.sources.runs.vocabulary import Split, find_split

_PIECE_BYTES = 1 << 18
_MOST_BYTES = 1 << 24
_MOST_KEPT_OPEN = 4
_LAST_TAG = "train/train_runtime"  # logged by the Hugging Face Trainer at the end


@dataclass(slots=True)
class _Stream:
    """The event file that is followed in a directory, and the newer file to follow next, if any."""

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
    found: FoundFile | None = None


class EventFileSource(FileSource[_Run]):
    """Reads the scalars in TensorBoard event files below the configured directories.

    The number `omitted` includes the directories that exceed the limit on directories per run.

    Args:
        logdirs: The configured directories, which need not exist yet.
        clock: A function that returns the current time, in Unix seconds.
        monotonic: A function that returns the time of the monotonic clock to which deadlines refer,
            in seconds.
        users: The users whose files are read.
        held: A function that returns the event files of processes that hold accelerators.
    """

    def __init__(
        self,
        logdirs: Sequence[Path],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        users: Users = Users(),  # noqa: B008 - immutable
        held: Callable[[], Iterable[FoundFile]] = tuple,
    ) -> None:
        super().__init__(clock=clock, monotonic=monotonic, users=users, held=held)
        self._logdirs = tuple(map(_expand, logdirs))
        self._parser = RecordParser()
        self._search_complaint: str | None = None

    def _find(self) -> None:
        search = Search(users=self._users)
        folders: dict[str, EventFolder] = {}
        unmatched = []
        for logdir in self._logdirs:
            found = find_folders(search, logdir)
            for folder in found:
                folders.setdefault(os.path.realpath(folder.path), folder)
            if not found:
                unmatched.append(logdir)
        self.unmatched = tuple(unmatched)
        add_held_folders(folders, self._held())
        self._search_complaint = search.complaint
        oldest = self._clock() - self.forget_after_seconds
        recent = [f for f in folders.values() if f.newest.modified_time >= oldest]
        by_run: dict[str, list[EventFolder]] = {}
        with_files = {folder.path for folder in folders.values()}
        for folder in recent:
            by_run.setdefault(find_run_folder(folder, with_files), []).append(folder)
        latest = sorted(by_run, key=lambda path: age_key(by_run[path]), reverse=True)
        self.omitted = max(0, len(latest) - self.most_runs)
        self.omitted += sum(cut_folders(path, of_run) for path, of_run in by_run.items())

        def owner(path: str) -> int:
            return find_owner(by_run[path])

        def group(path: str) -> int:
            return self._users.find_group(owner(path))

        kept = take_turns(order_owners(latest, owner), group)[: self.most_runs]
        for path in self._followed.keys() - set(kept):
            self._close(self._followed.pop(path))
        for path in kept:
            self._update(self._followed.setdefault(path, _Run()), by_run[path], path)
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
        runs = [self._followed[path] for path in logdirs]
        names = name_runs(components, fewest, [run.name or None for run in runs])
        for run, name in zip(runs, names, strict=True):
            run.name = name

    def _update(self, run: _Run, folders: Sequence[EventFolder], run_path: str) -> None:
        """Follow the newest event file in each of a run's directories."""
        gone = run.streams.keys() - {folder.path for folder in folders}
        for path in gone:
            run.streams.pop(path).file.close()
        for folder in folders:
            path = folder.newest.path
            stream = run.streams.get(folder.path)
            run.found = folder.newest
            if stream is None:
                split = find_split(os.path.basename(folder.path))  # noqa: PTH119 - hot
                run.streams[folder.path] = _Stream(
                    FollowedFile(path, beneath=folder.newest.beneath),
                    split if folder.path != run_path else "",
                )
            elif stream.file.path != path:
                stream.next_path = path

    def _follow(self, run: _Run) -> None:
        """Read new records from a run's event files until the time limit."""
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
            beneath = run.found.beneath if run.found is not None else ""
            stream.file = FollowedFile(stream.next_path, beneath=beneath)
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

    def _list_complaints(self) -> list[str | None]:
        runs = self._followed.values()
        streams = (stream for run in runs for stream in run.streams.values())
        return [self._search_complaint, *(stream.complaint for stream in streams)]

    def _describe(self) -> tuple[FoundRun, ...]:
        runs = self._followed.values()
        self.files = tuple(map(_judge, runs))
        return tuple(_describe(run) for run in runs if not run.scalars.is_empty)

    def _close(self, run: _Run) -> None:
        for stream in run.streams.values():
            stream.file.close()


def _expand(logdir: Path) -> str:
    return os.path.expanduser(logdir)  # noqa: PTH111 - leaves an unknown user alone


def _describe(run: _Run) -> FoundRun:
    described = run.scalars.describe(
        run.name,
        "tensorboard",
        _find_latest(run).path,
        started_time=run.started_time,
        last_time=run.last_time,
    )
    return mark_held(described, run.found) if run.found is not None else described


def _judge(run: _Run) -> FollowedState:
    """Return the state of a run's event files, which are understood if they contain scalars."""
    state: FileState = "new" if run.scalars.is_empty else "understood"
    if any(stream.complaint for stream in run.streams.values()):
        state = "unreadable"
    found = run.found
    is_named, place = (True, "") if found is None else (found.is_named, found.place)
    return FollowedState(_find_latest(run).path, state, is_named, place)


def _find_latest(run: _Run) -> FollowedFile:
    return max((stream.file for stream in run.streams.values()), key=lambda f: f.modified_time)
