"""Follow training runs that write a log.

A log is any text file that matches one of the globs. A log is followed across rotation, by renaming
or by copying and truncating. A line ends with a line feed, or with a carriage return or backspaces,
as in progress bars; colour codes are removed. An incomplete line is read if nothing was appended
for a second.

Initially, only the last 256 KiB of a large file are read. A file without a line that matches a
pattern is not a run. A run is named after the part of the log's path that the glob does not fix.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainvitals.foreign_text import strip_escape_codes
from trainvitals.sources.runs.discovery import (
    FoundFile,
    Search,
    count_open,
    explain_unreadable,
    name_runs,
    split_path,
)
from trainvitals.sources.runs.followed_file import FollowedFile, ReadBudget
from trainvitals.sources.runs.lines import LineMatcher, LineReader
from trainvitals.sources.runs.owners import Users, order_owners, take_turns
from trainvitals.sources.runs.patterns import LONGEST_LINE, Pattern
from trainvitals.sources.runs.profiles import PROFILES
from trainvitals.sources.runs.scalars import FoundRun

_PIECE_BYTES = 1 << 18
_MOST_BYTES = 1 << 22
_MOST_RUNS_IN_A_FILE = 16
_SETTLED_SECONDS = 1.0
_ROTATED = re.compile(r"[.-]\d{1,8}$")
_PACKED = (".gz", ".xz", ".zst", ".bz2", ".zip")


class _Log:
    """The state of a log that is followed.

    Attributes:
        file: The file that contains the log.
        name: The name of the file's own run.
        runs: The readers of the runs in the file, by the run names in the log lines; the empty name
            stands for the file's own run.
        tail: The text of an incomplete line that was already read.
        is_inside: Whether the offset is inside a line whose beginning was not read.
        complaint: The reason why the file could not be read; None if the file could be read.
    """

    __slots__ = ("complaint", "file", "is_inside", "name", "runs", "tail")

    def __init__(self, found: FoundFile) -> None:
        self.file = FollowedFile(found.path)
        self.name = ""
        self.runs: dict[str, LineReader] = {}
        self.tail = ""
        self.is_inside = False
        self.complaint: str | None = None
        if found.size > _PIECE_BYTES:
            self.file.skip(found.size - _PIECE_BYTES)
            self.is_inside = True

    def reader_of(self, run: str) -> LineReader | None:
        """Return the reader of a run's lines; None if the file contains too many runs."""
        reader = self.runs.get(run)
        if reader is None and len(self.runs) < _MOST_RUNS_IN_A_FILE:
            reader = self.runs[run] = LineReader()
        return reader


class LogLineSource:
    """Reads the numbers in the lines of log files.

    Args:
        globs: The path patterns of the logs, in the format that the module `discovery` describes.
        patterns: The line patterns, in the order in which they are tried.
        clock: A function that returns the current time, in Unix seconds.
        monotonic: A monotonic clock, in seconds, to which deadlines refer.
        most_files: The maximum number of logs to follow; the latest logs are chosen.
        forget_after_seconds: The number of seconds after the last write to a log from which the log
            is ignored.
        users: The users whose logs are read; logs are chosen from each user in turn.

    Attributes:
        omitted: The number of logs that were left out of the last reading because of `most_files`.
        complaint: One line with a file or pattern that could not be used, the reason and the
            remedy; None if all files and patterns could be used.
    """

    def __init__(
        self,
        globs: Sequence[str],
        *,
        patterns: Sequence[Pattern] = PROFILES,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        most_files: int = 16,
        forget_after_seconds: float = 86_400.0,
        users: Users = Users(),  # noqa: B008 - immutable
    ) -> None:
        self._users = users
        self.omitted = 0
        self.complaint: str | None = None
        self._globs = tuple(globs)
        self._matcher = LineMatcher(patterns)
        self._clock = clock
        self._most_files = most_files
        self._forget_after_seconds = forget_after_seconds
        self._logs: dict[str, _Log] = {}
        self._budget: ReadBudget[_Log] = ReadBudget(monotonic=monotonic)
        self._search_complaint: str | None = None

    def read(self, deadline: float) -> tuple[FoundRun, ...]:
        """Read new lines from the logs until all are read or the time is up.

        Args:
            deadline: The monotonic time by which the method returns; the next call reads the
                remaining lines.

        Returns:
            The runs from which at least one number was read.
        """
        if self._budget.is_search_due():
            with self._budget.searching():
                self._find_logs()
        for log in self._budget.take(list(self._logs.values()), deadline):
            log.complaint = None
            try:
                self._read_on(log)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.complaint = explain_unreadable(log.file.path, error)
        complaints = [log.complaint for log in self._logs.values()]
        complaints += [self._search_complaint, self._matcher.complaint]
        self.complaint = next(filter(None, complaints), None)
        return self._describe()

    def use_patterns(self, patterns: Sequence[Pattern]) -> None:
        """Use other log line patterns from now on."""
        self._matcher = LineMatcher(patterns)

    def close(self) -> None:
        """Close all logs."""
        for log in self._logs.values():
            log.file.close()
        self._logs = {}

    def _find_logs(self) -> None:
        search = Search(users=self._users)
        found: dict[str, FoundFile] = {}
        fewest: dict[str, int] = {}
        for pattern in self._globs:
            for file in search.find(pattern):
                found[file.path] = file
                fewest.setdefault(file.path, count_open(pattern, file.path))
        self._search_complaint = search.complaint
        oldest = self._clock() - self._forget_after_seconds
        kept: dict[str, FoundFile] = {}
        seen: set[tuple[int, int]] = set()
        # Logs that are followed come first, so that a file with several names keeps its name.
        for file in sorted(
            found.values(), key=lambda f: (-f.modified_time, f.path not in self._logs)
        ):
            if file.modified_time < oldest or _is_set_aside(file.path, found):
                continue
            if file.identity not in seen:
                seen.add(file.identity)
                kept[file.path] = file
        self.omitted = max(0, len(kept) - self._most_files)
        in_order = order_owners(kept.values(), _owner)
        turns = take_turns(in_order, lambda file: self._users.find_group(file.owner))
        paths = [file.path for file in turns[: self._most_files]]
        for path in self._logs.keys() - set(paths):
            self._logs.pop(path).file.close()
        for path in paths:
            self._logs.setdefault(path, _Log(kept[path]))
        names = name_runs(
            [_components(path) for path in paths],
            [fewest[path] for path in paths],
            [self._logs[path].name or None for path in paths],
        )
        for path, name in zip(paths, names, strict=True):
            self._logs[path].name = name

    def _read_on(self, log: _Log) -> None:
        """Parse a log's complete lines, and its last line if nothing was appended for a second."""
        file = log.file
        end = file.offset + _MOST_BYTES
        while True:
            data, restarted = file.peek(_PIECE_BYTES)
            if restarted:
                log.tail, log.is_inside = "", False
            cut = 1 + max(data.rfind(b"\n"), data.rfind(b"\r"), data.rfind(b"\x08"))
            if cut:
                self._take_lines(log, data[:cut])
                file.advance(data[:cut])
            rest = data[cut:]
            if len(rest) > LONGEST_LINE:
                file.advance(rest)
                log.is_inside = True
            elif len(data) < _PIECE_BYTES:
                if rest and self._clock() - file.modified_time >= _SETTLED_SECONDS:
                    self._take_tail(log, rest)
                return
            if self._budget.is_over() or file.offset >= end:
                return

    def _take_lines(self, log: _Log, data: bytes) -> None:
        lines = _split(data)
        if log.is_inside or (log.tail and lines[0] == log.tail):
            del lines[0]
        log.tail, log.is_inside = "", False
        take = self._matcher.take
        for line in lines:
            if not line:
                continue
            if len(line) <= LONGEST_LINE:
                take(line, log.reader_of)
            elif (reader := log.reader_of("")) is not None:
                reader.scalars.count_overlong()

    def _take_tail(self, log: _Log, data: bytes) -> None:
        line = _split(data)[0]
        if not log.is_inside and line != log.tail:
            log.tail = line
            self._matcher.take(line, log.reader_of)

    def _describe(self) -> tuple[FoundRun, ...]:
        found: dict[str, FoundRun] = {}
        for log in self._logs.values():
            for run, reader in log.runs.items():
                if reader.scalars.is_empty:
                    continue
                name = run or log.name
                if name in found:
                    name = f"{run}/{log.name}"
                found.setdefault(
                    name,
                    reader.scalars.describe(
                        name,
                        "log",
                        log.file.path,
                        started_time=None,
                        last_time=log.file.modified_time,
                    ),
                )
        return tuple(found.values())


def _split(data: bytes) -> list[str]:
    text = strip_escape_codes(data.decode(errors="replace"))
    return text.replace("\r", "\n").replace("\x08", "\n").split("\n")


def _owner(file: FoundFile) -> int:
    return file.owner


def _is_set_aside(path: str, found: Mapping[str, FoundFile]) -> bool:
    """Return whether a file is a rotated log.

    A rotated log is compressed, or is numbered and lies beside the current log.
    """
    return path.endswith(_PACKED) or _ROTATED.sub("", path) in found.keys() - {path}


def _components(path: str) -> tuple[str, ...]:
    *folders, name = split_path(path)
    return (*folders, Path(name).stem)
