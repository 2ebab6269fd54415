"""Reads the files of a run or a recording, and chooses a common x axis for the files.

`trainvitals.lightning.ResourceMonitorCallback` writes one CSV file per epoch and rank, with the
columns `step` and `timestamp` and one column per reading; an empty cell is an unknown reading.
`trainvitals record` writes CSV or JSON Lines without `step`. Files of both kinds may be compressed
with gzip. Unknown numbers are NaN, which causes a gap in a line.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import math
import re
import zlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import open_named
from trainvitals.units import format_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

_TIME_UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60))
_UNIT_SPANS = 3  # a time axis spans at least three of its units

_GZIP = b"\x1f\x8b"
_MOST_BYTES = 1 << 28
_HIGHEST = 1e15  # larger numbers are errors, and matplotlib cannot draw them


@dataclass(frozen=True, slots=True)
class Part:
    """The contents of a file.

    Attributes:
        rank: The rank in the file name; 0 if the name contains no rank.
        begin: The text of the first timestamp; an empty string if the file contains no timestamps.
        columns: The values in each needed column, one for each row; `timestamp` is in Unix seconds.
    """

    rank: int
    begin: str
    columns: Mapping[str, Sequence[float]]

    def first(self, column: str) -> float:
        """Return the first known value in a column, or infinity if no value is known."""
        return next(filter(math.isfinite, self.columns.get(column, ())), math.inf)


@dataclass(frozen=True, slots=True)
class Axis:
    """The common x axis of several files.

    Attributes:
        label: The label of the axis.
        positions: The position on the axis of each row, for each file.
        is_time: Whether the axis shows time, in which case a line is interrupted between two files.
    """

    label: str
    positions: Sequence[Sequence[float]]
    is_time: bool


def read_part(path: Path, patterns: Collection[str]) -> Part:
    """Read a file, and omit incomplete rows, which are shorter than the header.

    Args:
        path: The path of the file.
        patterns: Patterns for the names of columns to read in addition to `step` and `timestamp`.

    Raises:
        ConfigurationError: The file cannot be read, contains no rows, or contains none of the
            columns.
    """
    try:
        with open_named(path) as raw:
            source = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == _GZIP else raw
            bounded = io.BufferedReader(_Bounded(source))
            with io.TextIOWrapper(bounded, encoding="utf-8-sig", newline="") as file:
                rows = _choose_rows(file, path)
                begin, columns = _read_rows(rows, path, re.compile("|".join(patterns)))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(
            f"{path}: this gzip file is incomplete; give what zcat can still extract"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}; give the CSV files of a run"
        ) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: this is not a CSV file; give those of a run") from error
    rank = re.search(r"rank(\d{1,9})", path.name)
    return Part(int(rank[1]) if rank else 0, begin, columns)


class _Bounded(io.RawIOBase):
    """A stream that fails if more than a maximum size is read, also after decompression.

    Args:
        source: The stream from which bytes are read.
    """

    def __init__(self, source: io.BufferedIOBase | gzip.GzipFile) -> None:
        self._source = source
        self._left = _MOST_BYTES

    def readable(self) -> bool:
        """Return True, because the stream can be read."""
        return True

    def seekable(self) -> bool:
        """Return whether the source stream is seekable."""
        return self._source.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position in the source stream, and return the new position."""
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the source stream."""
        return self._source.tell()

    def readinto(self, buffer: Buffer, /) -> int:
        """Read bytes from the source into a buffer, and return the number of bytes.

        Raises:
            OSError: The source stream exceeds the maximum size.
        """
        size = self._source.readinto(buffer)
        self._left -= size
        if self._left < 0:
            raise OSError(errno.EFBIG, f"it has more than {format_bytes(_MOST_BYTES)}")
        return size


def _choose_rows(file: TextIO, path: Path) -> Iterator[list[str]]:
    """Return the header and the rows of a CSV or JSON Lines file."""
    first = file.read(1)
    file.seek(0)
    return _tabulate_objects(file, path) if first == "{" else csv.reader(file)


def _tabulate_objects(file: TextIO, path: Path) -> Iterator[list[str]]:
    """Yield a header and rows from JSON Lines; every key with a number in any line is a column."""
    rows: list[dict[str, str]] = []
    for number, line in enumerate(file, start=1):
        if not line.endswith("\n"):  # the line is incomplete
            break
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{path}: line {number}: this is not JSON") from error
        if not isinstance(found, dict):
            raise ConfigurationError(f"{path}: line {number}: this is not a JSON object")
        rows.append(
            {
                key: str(value)
                for key, value in found.items()
                if type(value) in (int, float) or key == "timestamp"
            }
        )
    header = list(dict.fromkeys(key for row in rows for key in row))
    yield header
    for row in rows:
        yield [row.get(key, "") for key in header]


def _read_rows(
    rows: Iterator[list[str]], path: Path, wanted: re.Pattern[str]
) -> tuple[str, dict[str, array[float]]]:
    header = next(rows, None)
    if header is None:
        raise ConfigurationError(f"{path}: the file is empty; give the CSV files of a run")
    if not any(map(wanted.fullmatch, header)):
        raise ConfigurationError(
            f"{path}: the first line has no column that is plotted, such as gpu_0_util or "
            "cpu_percent; give files of ResourceMonitorCallback or trainvitals record"
        )
    needed = {
        name: index
        for index, name in enumerate(header)
        if name in ("step", "timestamp") or wanted.fullmatch(name)
    }
    begin = ""
    columns: dict[str, array[float]] = {name: array("d") for name in needed}
    for line, row in enumerate(rows, start=2):
        if len(row) < len(header) or row == header:  # incomplete, or a repeated header
            continue
        for name, index in needed.items():
            try:
                value = _read_time(row[index]) if name == "timestamp" else _read_number(row[index])
            except (ValueError, OverflowError) as error:
                raise ConfigurationError(
                    f"{path}: line {line}: {name} is {row[index][:40]!r}; correct it or leave it empty"
                ) from error
            columns[name].append(value)
        begin = begin or (row[needed["timestamp"]] if "timestamp" in needed else "")
    if not any(columns.values()):
        raise ConfigurationError(
            f"{path}: there are no rows yet; wait until the run has written some"
        )
    return begin, columns


def _read_number(text: str) -> float:
    number = float(text or "nan")
    if _HIGHEST < abs(number) < math.inf:
        raise ValueError(text)
    return number if math.isfinite(number) else math.nan


def _read_time(text: str) -> float:
    # `datetime.fromisoformat` of Python 3.10 does not parse `Z`.
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else math.nan


def sort_parts(parts: Sequence[Part]) -> list[Part]:
    """Return the parts ordered by time, or ordered by steps if the files have no timestamps."""
    return sorted(parts, key=lambda part: (part.first("timestamp"), part.first("step")))


def choose_axis(parts: Sequence[Part]) -> Axis:
    """Return an x axis that shows steps, or time if the step numbers restart in each epoch.

    Raises:
        ConfigurationError: The step numbers restart, and a file has no timestamps.
    """
    if _is_rising(parts):
        return Axis("step", [part.columns["step"] for part in parts], is_time=False)
    start = min(part.first("timestamp") for part in parts)
    if not all(math.isfinite(part.first("timestamp")) for part in parts):
        raise ConfigurationError(
            "steps start again and timestamps are missing; plot each file separately"
        )
    times = [[value - start for value in part.columns["timestamp"]] for part in parts]
    span = max(value for time in times for value in time if math.isfinite(value))
    unit, seconds = next(
        ((unit, size) for unit, size in _TIME_UNITS if span >= _UNIT_SPANS * size), ("seconds", 1)
    )
    positions = [array("d", (value / seconds for value in time)) for time in times]
    return Axis(f"{unit} since the start", positions, is_time=True)


def _is_rising(parts: Sequence[Part]) -> bool:
    """Return whether every file has steps, and the steps of each rank increase strictly."""
    if not all(math.isfinite(part.first("step")) for part in parts):
        return False
    return all(
        before < after
        for rank in {part.rank for part in parts}
        for before, after in pairwise(
            step
            for part in parts
            if part.rank == rank
            for step in part.columns["step"]
            if math.isfinite(step)
        )
    )
