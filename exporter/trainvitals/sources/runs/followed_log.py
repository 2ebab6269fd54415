"""The state of one log, CSV file or JSON file that is followed."""

from __future__ import annotations

from trainvitals.sources.runs.discovery import FileState, FollowedState, FoundFile
from trainvitals.sources.runs.followed_file import FollowedFile
from trainvitals.sources.runs.line_formats import LineFormat
from trainvitals.sources.runs.lines import LineReader

_MOST_RUNS_IN_A_FILE = 16
# Programs print other lines before the training begins.
_FEW_LINES, _FEW_SECONDS = 20, 60.0


class FollowedLog:
    """The state of a log that is followed.

    Attributes:
        file: The followed file that contains the log.
        found: The description of the file from the search.
        name: The run name for lines that do not name a run.
        format: The format of the file; None while the file contains no complete line.
        runs: The readers of the runs in the file, by the run names in the log lines; the empty name
            stands for the file's own run.
        previous: The readers from before the file was rewritten, which are kept until a number is
            read from the new file.
        tail: The text of an incomplete line that has already been read.
        is_inside: Whether the offset is inside a line whose beginning was not read.
        lines: The number of lines that were read.
        understood: The number of lines that were understood.
        since: The time when the first line was read, in Unix seconds.
        stamp: The identity, size and modification time of a document when it was last read.
        complaint: The reason why the file could not be read; None if the file could be read.
    """

    __slots__ = (
        "complaint",
        "file",
        "format",
        "found",
        "is_inside",
        "lines",
        "name",
        "previous",
        "runs",
        "since",
        "stamp",
        "tail",
        "understood",
    )

    def __init__(self, found: FoundFile) -> None:
        self.file = FollowedFile(found.path, beneath=found.beneath)
        self.found = found
        self.name = ""
        self.format: LineFormat | None = None
        self.runs: dict[str, LineReader] = {}
        self.previous: dict[str, LineReader] = {}
        self.tail = ""
        self.is_inside = False
        self.lines = self.understood = 0
        self.since = 0.0
        self.stamp: object = None
        self.complaint: str | None = None

    def start_over(self) -> None:
        """Reset the state after the file has been replaced or rewritten."""
        self.tail, self.is_inside = "", False
        if self.format is not None and self.format.is_rewritten:
            self.previous = self.runs if self.has_numbers() else self.previous
            self.runs = {}
        self.format = None

    def has_numbers(self) -> bool:
        """Return whether a run's number has been read from the file."""
        return any(not reader.scalars.is_empty for reader in self.runs.values())

    def reader_of(self, run: str) -> LineReader | None:
        """Return the reader of a run's lines; None if the file contains too many runs."""
        reader = self.runs.get(run)
        if reader is None and len(self.runs) < _MOST_RUNS_IN_A_FILE:
            reader = self.runs[run] = LineReader()
        return reader

    def take(self, line: str, now: float) -> None:
        """Read a line in the file's format."""
        if self.format is not None and line:
            self.since = self.since or now
            self.lines += 1
            taken = self.format.take(line, self.reader_of)
            self.understood += bool(taken.format)

    def judge(self, now: float) -> FileState:
        """Return whether the file has been understood.

        Args:
            now: The current time, in Unix seconds.
        """
        if self.complaint is not None:
            return "unreadable"
        if self.understood:
            return "understood"
        is_judged = self.lines >= _FEW_LINES or (self.lines and now - self.since >= _FEW_SECONDS)
        return "not_understood" if is_judged else "new"

    def describe(self, now: float) -> FollowedState:
        """Return the state of the file for the report on followed files."""
        found = self.found
        return FollowedState(
            found.path, self.judge(now), found.is_named or found.is_log, found.place
        )
