"""Follow training runs that write a log, a CSV file or a JSON file.

A log is any text file that matches one of the globs, or that a process on an accelerator writes
(see `held_files`). The module `line_formats` describes the formats of logs. A log is followed
across rotation, by renaming or by copying and truncating. A line ends with a line feed, or with a
carriage return or backspaces, as in progress bars. Color codes are removed. An incomplete line is
read if no data has been appended for a second.

Initially, only the header and the last 256 KiB of a large file are read. If no line in a file is
understood, the file is not shown as a run. A run is named after the part of the log's path from the
glob's first wildcard on.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from trainvitals.sources.runs.file_source import FileSource
from trainvitals.sources.runs.followed_log import FollowedLog
from trainvitals.sources.runs.held_runs import add_held, count_below, mark_held
from trainvitals.sources.runs.line_formats import (
    MOST_DOCUMENT_BYTES,
    WELL_KNOWN_NAMES,
    choose_format,
)
from trainvitals.sources.runs.line_matcher import LineMatcher
from trainvitals.sources.runs.owners import Users, order_owners, take_turns
from trainvitals.sources.runs.patterns import Pattern
from trainvitals.sources.runs.profiles import PROFILES
from trainvitals.sources.runs.scalars import FoundRun
from trainvitals.units import format_bytes

_PIECE_BYTES = 1 << 18
_HEAD_BYTES = 1 << 16
_MOST_BYTES = 1 << 22
_SETTLED_SECONDS = 1.0
_ROTATED = re.compile(r"[.-]\d{1,8}$")
_PACKED = (".gz", ".xz", ".zst", ".bz2", ".zip")


class LogLineSource(FileSource[FollowedLog]):
    """Reads the numbers in the lines of log files.

    Args:
        globs: The path patterns of the logs, in the format that the module `discovery` describes.
        patterns: The line patterns, in the order in which they are tried.
        clock: A function that returns the current time, in Unix seconds.
        monotonic: A function that returns the time of the monotonic clock to which deadlines refer,
            in seconds.
        users: The users whose logs are read.
        held: A function that returns the files of processes that hold accelerators.
    """

    def __init__(
        self,
        globs: Sequence[str],
        *,
        patterns: Sequence[Pattern] = PROFILES,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        users: Users = Users(),  # noqa: B008 - immutable
        held: Callable[[], Iterable[FoundFile]] = tuple,
    ) -> None:
        super().__init__(clock=clock, monotonic=monotonic, users=users, held=held)
        self._globs = tuple(globs)
        self._matcher = LineMatcher(patterns)
        self._search_complaint: str | None = None

    def use_patterns(self, patterns: Sequence[Pattern]) -> None:
        """Replace the log line patterns."""
        self._matcher.use(patterns)

    def _find(self) -> None:
        search = Search(users=self._users)
        found: dict[str, FoundFile] = {}
        fewest: dict[str, int] = {}
        for pattern in self._globs:
            for file in search.find(pattern):
                found[file.path] = file
                fewest.setdefault(file.path, count_open(pattern, file.path))
        self._search_complaint = search.complaint
        self.unmatched = tuple(each for each in self._globs if each not in search.matched)
        add_held(found, self._held())
        paths = self._choose(found)
        for path in self._followed.keys() - set(paths):
            self._close(self._followed.pop(path))
        for path in paths:
            self._followed.setdefault(path, FollowedLog(found[path])).found = found[path]
        components = {path: _components(found[path]) for path in paths}
        names = name_runs(
            components.values(),
            [
                fewest.get(path) or count_below(components[path], found[path].place)
                for path in paths
            ],
            [self._followed[path].name or None for path in paths],
        )
        for path, name in zip(paths, names, strict=True):
            self._followed[path].name = name

    def _choose(self, found: Mapping[str, FoundFile]) -> list[str]:
        """Return the logs to follow: at most `most_runs` that flags name, and all of processes."""
        oldest = self._clock() - self.forget_after_seconds
        kept: dict[str, FoundFile] = {}
        seen: set[tuple[int, int]] = set()
        # Of names of the same file, a followed name comes first, so that the file keeps that name.
        for file in sorted(
            found.values(), key=lambda f: (-f.modified_time, f.path not in self._followed)
        ):
            if file.modified_time < oldest or _is_set_aside(file.path, found):
                continue
            if file.identity not in seen:
                seen.add(file.identity)
                kept[file.path] = file
        named = [file for file in kept.values() if file.is_named]
        self.omitted = max(0, len(named) - self.most_runs)
        in_order = order_owners(named, _owner)
        turns = take_turns(in_order, lambda file: self._users.find_group(file.owner))
        of_processes = [file for file in kept.values() if not file.is_named]
        return [file.path for file in (*turns[: self.most_runs], *of_processes)]

    def _follow(self, log: FollowedLog) -> None:
        log.complaint = None
        try:
            self._read_on(log)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.complaint = explain_unreadable(log.file.path, error)

    def _list_complaints(self) -> list[str | None]:
        complaints = (log.complaint for log in self._followed.values())
        return [*complaints, self._search_complaint, self._matcher.complaint]

    def _close(self, log: FollowedLog) -> None:
        log.file.close()

    def _read_on(self, log: FollowedLog) -> None:
        """Parse a log's complete lines, and its last line if nothing was appended for a second."""
        file = log.file
        end = file.offset + _MOST_BYTES
        while True:
            if log.format is None and not self._choose_format(log):
                return
            if log.format is not None and log.format.is_document:
                self._read_document(log)
                return
            data, restarted = file.peek(_PIECE_BYTES)
            if restarted:
                log.start_over()
                continue
            cut = 1 + max(data.rfind(b"\n"), data.rfind(b"\r"), data.rfind(b"\x08"))
            if cut:
                self._take_lines(log, data[:cut])
                file.advance(data[:cut])
            rest = data[cut:]
            if log.format is not None and len(rest) > log.format.longest:
                file.advance(rest)
                log.is_inside = True
            elif len(data) < _PIECE_BYTES:
                if rest and self._clock() - file.modified_time >= _SETTLED_SECONDS:
                    self._take_tail(log, rest)
                return
            if self._budget.is_over() or file.offset >= end:
                return

    def _choose_format(self, log: FollowedLog) -> bool:
        """Choose a file's format from the first lines; return False if no line is complete yet."""
        file = log.file
        data, _ = file.peek(_HEAD_BYTES)
        is_complete = len(data) == _HEAD_BYTES or any(end in data for end in b"\n\r\x08")
        is_settled = self._clock() - file.modified_time >= _SETTLED_SECONDS
        if not data or not (is_complete or is_settled):
            return False
        head = "\n".join(_split(data))
        log.format = choose_format(file.path, head, self._matcher)
        if file.size > _PIECE_BYTES and not log.format.is_document:
            if log.format.source == "csv":
                log.take(next(line for line in head.split("\n") if not line.startswith("#")), 0.0)
            file.skip(file.size - _PIECE_BYTES)
            log.is_inside = True
        return True

    def _read_document(self, log: FollowedLog) -> None:
        """Read a document again if it has changed."""
        data, _ = log.file.peek(MOST_DOCUMENT_BYTES + 1)
        stamp = (log.file.identity, log.file.size, log.file.modified_time)
        if stamp == log.stamp:
            return
        log.stamp = stamp
        if log.file.size > MOST_DOCUMENT_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {format_bytes(MOST_DOCUMENT_BYTES)}")
        previous, log.runs = log.runs, {}
        log.take(data.decode(errors="replace"), self._clock())
        if not log.has_numbers():  # the document may still be incomplete
            log.runs = previous

    def _take_lines(self, log: FollowedLog, data: bytes) -> None:
        lines = _split(data)
        if log.is_inside or (log.tail and lines[0] == log.tail):
            del lines[0]
        log.tail, log.is_inside = "", False
        longest = log.format.longest if log.format is not None else 0
        now = self._clock()
        for line in lines:
            if len(line) <= longest:
                log.take(line, now)
            elif (reader := log.reader_of("")) is not None:
                reader.scalars.count_overlong()

    def _take_tail(self, log: FollowedLog, data: bytes) -> None:
        line = _split(data)[0]
        takes_tail = log.format is not None and log.format.takes_tail
        if takes_tail and not log.is_inside and line != log.tail:
            log.tail = line
            log.take(line, self._clock())

    def _describe(self) -> tuple[FoundRun, ...]:
        now = self._clock()
        self.files = tuple(log.describe(now) for log in self._followed.values())
        found: dict[str, FoundRun] = {}
        for log in self._followed.values():
            readers = log.runs if log.has_numbers() else log.previous or log.runs
            for own, reader in readers.items():
                if reader.scalars.is_empty:
                    continue
                name = own or log.name
                if name in found:
                    name = f"{own}/{log.name}"
                run = reader.scalars.describe(
                    name,
                    "log" if log.format is None else log.format.source,
                    log.file.path,
                    started_time=None,
                    last_time=log.file.modified_time,
                )
                found.setdefault(name, mark_held(run, log.found))
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


def _components(file: FoundFile) -> tuple[str, ...]:
    *folders, name = split_path(file.path)
    if not file.is_named and name in WELL_KNOWN_NAMES:
        return tuple(folders)
    return (*folders, Path(name).stem)
