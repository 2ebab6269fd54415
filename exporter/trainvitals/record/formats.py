"""The formats of a recording: text for people, CSV and JSON Lines for programs.

In a CSV file, the first line contains the column names, beginning with `timestamp`. Every other
line is a snapshot. An unknown value is written as an empty cell. An existing file is continued with
the columns of its header. If the header lacks a column because a device was added, the file is
rotated and a new file is started.

    timestamp,uptime_seconds,cpu_percent,…,gpu_0_up,gpu_0_util,…,disk_/_used_pct,…,gpu_0_name
    2025-11-13T03:13:20.250+01:00,86400.2,12,…,1,97,…,75,…,NVIDIA H100 80GB HBM3

`timestamp` is the local time with its offset from UTC; names and units are listed in `numbers.py`.
Numbers have at most three decimals. The JSON Lines format is described in `jsonlines.py`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainvitals.errors import ConfigurationError
from trainvitals.record.jsonlines import write_json_line
from trainvitals.record.numbers import list_names, list_numbers
from trainvitals.record.snapshot import Snapshot
from trainvitals.record.text import write_end, write_text
from trainvitals.units import format_local_iso

_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_FIRST = "timestamp"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a recording, which is appended to the file in one write.

    Attributes:
        text: The piece's complete lines.
        head: The header of the file; an empty string if the format has no header.
    """

    text: str
    head: str = ""


class Format(Protocol):
    """The interface of a recording's format."""

    def write(self, snapshot: Snapshot) -> Piece:
        """Format a snapshot as complete lines."""
        ...

    def write_end(self, now: float, written: int) -> Piece | None:
        """Format the last line, with the Unix time `now`; None if the format has no last line."""
        ...


class TextFormat:
    """The text format, which is written for people."""

    def write(self, snapshot: Snapshot) -> Piece:
        """Format a snapshot as complete lines."""
        return Piece(write_text(snapshot))

    def write_end(self, now: float, written: int) -> Piece | None:
        """Format the last line of a recording that ended normally."""
        return Piece(write_end(now, written))


class JsonFormat:
    """The JSON Lines format, with one JSON object in each line."""

    def write(self, snapshot: Snapshot) -> Piece:
        """Format a snapshot as complete lines."""
        return Piece(write_json_line(snapshot, format_local_iso(snapshot.time)))

    def write_end(self, now: float, written: int) -> Piece | None:  # noqa: ARG002 - as in `Format`
        """Return None: the format has no last line, since every line is a snapshot."""
        return None


class CsvFormat:
    """The CSV format, which is a table of numbers.

    Args:
        columns: The columns of the existing file, without `timestamp`.
    """

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self._columns = list(columns)

    def write(self, snapshot: Snapshot) -> Piece:
        """Format a snapshot as a row, and add to the header the columns that it lacks."""
        cells = {name: _write_number(value) for name, value in list_numbers(snapshot).items()}
        cells |= list_names(snapshot)
        self._columns += [name for name in cells if name not in self._columns]
        row = [cells.get(name, "") for name in self._columns]
        return Piece(
            _write_row([format_local_iso(snapshot.time), *row]),
            _write_row([_FIRST, *self._columns]),
        )

    def write_end(self, now: float, written: int) -> Piece | None:  # noqa: ARG002 - as in `Format`
        """Return None: the format has no last line, since every line is a snapshot."""
        return None


def name_format(wanted: str | None, path: str | None) -> str:
    """Return the requested format, else the format that the file suffix implies, else `text`.

    Args:
        wanted: The requested format: `text`, `csv` or `jsonl`; None if no format was requested.
        path: The path of the file; None if the path is not known yet.
    """
    if wanted is not None:
        return wanted
    ends = [suffix for suffix in _SUFFIXES if path is not None and path.lower().endswith(suffix)]
    return _SUFFIXES[ends[0]] if ends else "text"


def make_format(name: str, first_line: str, path: str) -> Format:
    """Return a format that continues an existing file.

    Args:
        name: The name of the format: `text`, `csv` or `jsonl`.
        first_line: The first line of the file; an empty string if the file is new or empty.
        path: The name of the file, for error messages.

    Raises:
        ConfigurationError: The existing file has another format.
    """
    if name == "text":
        return TextFormat()
    columns = next(csv.reader([first_line.rstrip("\n")]), []) if name == "csv" else []
    fits = columns[:1] == [_FIRST] if name == "csv" else first_line.startswith("{")
    if first_line and not fits:
        raise ConfigurationError(
            f"{path}: this is not a recording in the format {name}; choose another --output"
        )
    return CsvFormat(columns[1:]) if name == "csv" else JsonFormat()


def _write_number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def _write_row(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
