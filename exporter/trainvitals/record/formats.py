"""What a snapshot looks like in a file: text for people, CSV and JSON lines for programs.

CSV: the first line names the columns, `timestamp` first; each other line is a snapshot. A number
that is not known is an empty cell. A file that is there is continued under its own header; where
a column is missing in it (a device has come), it is put away and a new one is begun.

    timestamp,uptime_seconds,cpu_percent,…,gpu_0_up,gpu_0_util,…,disk_/_used_pct
    2025-11-13T03:13:20.250+01:00,86400.2,12,…,1,97,…,75

`timestamp` is local time with its offset; names and units stand in `numbers.py`. Numbers have at
most three decimals. JSON lines are described in `jsonlines.py`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Protocol

from trainvitals.errors import ConfigurationError
from trainvitals.record.jsonlines import write_json_line
from trainvitals.record.numbers import list_numbers
from trainvitals.record.snapshot import Snapshot
from trainvitals.record.text import write_end, write_text

FORMATS = ("text", "csv", "jsonl")
_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_FIRST = "timestamp"


@dataclass(frozen=True, slots=True)
class Piece:
    """What is appended to a file.

    Attributes:
        text: Whole lines.
        head: What the file begins with; empty where nothing must stand there.
    """

    text: str
    head: str = ""


class Format(Protocol):
    """Makes pieces of a file."""

    def write(self, snapshot: Snapshot) -> Piece:
        """Write a snapshot."""
        ...

    def write_end(self, now: float, written: int) -> Piece | None:
        """Write that the recording ends, with the Unix time; None where the format has no word."""
        ...


class TextFormat:
    """Text that a person reads."""

    def write(self, snapshot: Snapshot) -> Piece:
        """Write a snapshot."""
        return Piece(write_text(snapshot))

    def write_end(self, now: float, written: int) -> Piece | None:
        """Write the last line."""
        return Piece(write_end(now, written))


class JsonFormat:
    """One JSON object in each line."""

    def write(self, snapshot: Snapshot) -> Piece:
        """Write a snapshot."""
        return Piece(write_json_line(snapshot, write_timestamp(snapshot.time)))

    def write_end(self, now: float, written: int) -> Piece | None:  # noqa: ARG002 - as others have it
        """Give None: every line is a snapshot."""
        return None


class CsvFormat:
    """A table of numbers.

    Args:
        columns: Those that the file has already, without `timestamp`.
    """

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self._columns = list(columns)

    def write(self, snapshot: Snapshot) -> Piece:
        """Write a snapshot; columns that were never seen before join the header."""
        numbers = list_numbers(snapshot)
        self._columns += [name for name in numbers if name not in self._columns]
        cells = [_write_number(numbers.get(name)) for name in self._columns]
        return Piece(
            _write_row([write_timestamp(snapshot.time), *cells]),
            _write_row([_FIRST, *self._columns]),
        )

    def write_end(self, now: float, written: int) -> Piece | None:  # noqa: ARG002 - as others have it
        """Give None: every line is a snapshot."""
        return None


def name_format(wanted: str | None, path: str | None) -> str:
    """Choose the format: that which is wanted, else by the end of the file's name.

    Args:
        wanted: One of `FORMATS`; None where nobody said.
        path: The file; None for one that gets its name here.
    """
    if wanted is not None:
        return wanted
    ends = [suffix for suffix in _SUFFIXES if path is not None and path.lower().endswith(suffix)]
    return _SUFFIXES[ends[0]] if ends else "text"


def make_format(name: str, first_line: str, path: str) -> Format:
    """Make a format that goes on where a file has ended.

    Args:
        name: One of `FORMATS`.
        first_line: How the file begins; empty for one without lines.
        path: What the file is called in messages.

    Raises:
        ConfigurationError: The file is none of that format.
    """
    if name == "text":
        return TextFormat()
    columns = next(csv.reader([first_line.rstrip("\n")]), []) if name == "csv" else []
    fits = columns[:1] == [_FIRST] if name == "csv" else first_line.startswith("{")
    if first_line and not fits:
        raise ConfigurationError(
            f"{path}: this is no recording in the format {name}; choose another --output"
        )
    return CsvFormat(columns[1:]) if name == "csv" else JsonFormat()


def write_timestamp(seconds: float, zone: tzinfo | None = None) -> str:
    """Write Unix time as local time with its offset; the machine's zone when None."""
    return datetime.fromtimestamp(seconds, zone).astimezone(zone).isoformat(timespec="milliseconds")


def _write_number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def _write_row(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
