"""Runs that write a log, followed as it grows.

A log is any text file that one of the globs matches. It is followed through rotation, be it by
renaming or by copying and truncating. A line ends with a line feed, a carriage return or
backspaces, as progress bars have them; colours are taken out. A line that is not ended yet is read
when nothing more came for a second.

A file that is large when it is found is read from its last 256 KiB on. A file without a line that a
pattern takes is no run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainvitals.sources.training.discovery import (
    FoundFile,
    Search,
    explain_unreadable,
    name_runs,
    split_path,
)
from trainvitals.sources.training.following import FollowedFile
from trainvitals.sources.training.lines import LineMatcher, LineReader
from trainvitals.sources.training.patterns import Pattern
from trainvitals.sources.training.profiles import PROFILES
from trainvitals.sources.training.scalars import FoundRun
from trainvitals.sources.training.turns import Turns

_PIECE_BYTES = 1 << 18
_MOST_BYTES = 1 << 22
_LONGEST_LINE = 1 << 13
_MOST_RUNS_IN_A_FILE = 16
_SETTLED_SECONDS = 1.0
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-Z\\^_])")
_ROTATED = re.compile(r"[.-]\d{1,8}$")
_PACKED = (".gz", ".xz", ".zst", ".bz2", ".zip")


class _Log:
    """One followed file.

    Attributes:
        file: The file.
        name: What its run is called.
        runs: Its runs by the names that its lines give; the empty name is that of the file.
        tail: The text of an unended line that was read already.
        is_inside: The offset lies inside a line whose beginning was not read.
        complaint: Why it could not be read.
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
        """Give the reader of a run's lines; None where the file has too many runs."""
        reader = self.runs.get(run)
        if reader is None and len(self.runs) < _MOST_RUNS_IN_A_FILE:
            reader = self.runs[run] = LineReader()
        return reader


class LogLineSource:
    """Reads the numbers in the lines of logs.

    Args:
        globs: Patterns of paths, as `discovery` describes them.
        patterns: The patterns of lines, in the order in which they are tried.
        clock: Tells Unix seconds.
        monotonic: Tells the time of the deadline.
        most_files: How many logs are followed, the latest ones.
        forget_after_seconds: A log that was not written to for so long is left alone.

    Attributes:
        omitted: Logs that `most_files` left out of the last reading.
        complaint: What could not be read, where, and what to do, in one line; None when everything
            could.
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
    ) -> None:
        self.omitted = 0
        self.complaint: str | None = None
        self._globs = tuple(globs)
        self._matcher = LineMatcher(patterns)
        self._clock = clock
        self._most_files = most_files
        self._forget_after_seconds = forget_after_seconds
        self._logs: dict[str, _Log] = {}
        self._turns: Turns[_Log] = Turns(monotonic=monotonic)
        self._search_complaint: str | None = None

    def read(self, deadline: float) -> tuple[FoundRun, ...]:
        """Read what is new in the logs, as far as the time allows.

        Args:
            deadline: The time (monotonic) by which it returns; what is left is read the next time.

        Returns:
            The runs of which a number was seen.
        """
        if self._turns.is_search_due():
            with self._turns.searching():
                self._find_logs()
        for log in self._turns.take(list(self._logs.values()), deadline):
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

    def close(self) -> None:
        """Close the files."""
        for log in self._logs.values():
            log.file.close()
        self._logs = {}

    def _find_logs(self) -> None:
        search = Search()
        found = {file.path: file for pattern in self._globs for file in search.find(pattern)}
        self._search_complaint = search.complaint
        oldest = self._clock() - self._forget_after_seconds
        kept: dict[str, FoundFile] = {}
        seen: set[tuple[int, int]] = set()
        # What is followed already comes first, so that a file of several names keeps its name.
        for file in sorted(
            found.values(), key=lambda f: (-f.modified_time, f.path not in self._logs)
        ):
            if file.modified_time < oldest or _is_set_aside(file.path, found):
                continue
            if file.identity not in seen:
                seen.add(file.identity)
                kept[file.path] = file
        self.omitted = max(0, len(kept) - self._most_files)
        paths = list(kept)[: self._most_files]
        for path in self._logs.keys() - set(paths):
            self._logs.pop(path).file.close()
        for path in paths:
            self._logs.setdefault(path, _Log(kept[path]))
        names = name_runs([_components(path) for path in paths], [1] * len(paths))
        for path, name in zip(paths, names, strict=True):
            self._logs[path].name = name

    def _read_on(self, log: _Log) -> None:
        """Take whole lines, and the last one when it is not ended but seems whole."""
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
            if len(rest) > _LONGEST_LINE:
                file.advance(rest)
                log.is_inside = True
            elif len(data) < _PIECE_BYTES:
                if rest and self._clock() - file.modified_time >= _SETTLED_SECONDS:
                    self._take_tail(log, rest)
                return
            if self._turns.is_over() or file.offset >= end:
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
            if len(line) <= _LONGEST_LINE:
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
    text = data.decode(errors="replace")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\r", "\n").replace("\x08", "\n").split("\n")


def _is_set_aside(path: str, found: Mapping[str, FoundFile]) -> bool:
    """Tell whether a file is what rotation left: packed, or numbered beside the one it was."""
    return path.endswith(_PACKED) or _ROTATED.sub("", path) in found.keys() - {path}


def _components(path: str) -> tuple[str, ...]:
    *folders, name = split_path(path)
    return (*folders, Path(name).stem)
