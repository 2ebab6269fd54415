"""The resource readings of each epoch as CSV, for a spreadsheet or `trainvitals plot`.

    resource_logs/epoch_0.csv           rank 0
    resource_logs/epoch_0.rank1.csv     rank 1

    step,timestamp,gpu_0_util,gpu_0_memory_pct,cpu_percent,memory_percent,io_read_rate_mbps
    0,2025-10-07T10:00:00,85.3,50.0,45.2,48.5,75.2

`step` counts the optimizer's steps before the batch, `timestamp` is local time without its zone.
The five columns above always come first; the same two of further GPUs follow, then all other
values by name. The header is fixed when a file is made: a value that is missing later is an empty
cell, one that appears later has its column from the next file on. A file that is there already is
continued under its own header. Lines are written whole.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

FIRST_COLUMNS = (
    "gpu_0_util",
    "gpu_0_memory_pct",
    "cpu_percent",
    "memory_percent",
    "io_read_rate_mbps",
)
_GPU_COLUMN = re.compile(r"gpu_(\d+)_(util|memory_pct)")
_LONGEST_HEADER_BYTES = 1 << 16

_log = logging.getLogger(__name__)


class Timeseries:
    """Appends readings to the file of the epoch.

    Args:
        directory: Where the files are; made with its parents when first needed.
        rank: Whose readings.
        now: Unix time.
    """

    def __init__(
        self, directory: Path, *, rank: int = 0, now: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._suffix = f".rank{rank}.csv" if rank > 0 else ".csv"
        self._now = now
        self._epoch: int | None = None
        self._file: io.FileIO | None = None
        self._columns: Sequence[str] = ()

    def append(self, epoch: int, step: int, metrics: Mapping[str, float]) -> None:
        """Write a line into the file of the epoch.

        A file that cannot be written is given up until the next epoch, with a warning.
        """
        try:
            if epoch != self._epoch:
                self._open(epoch, metrics)
            if self._file is not None:
                self._write(self._write_row(step, metrics))
        except OSError as error:
            _log.warning(
                "cannot write %s: %s; the resource log of this epoch ends here, training goes on",
                self._path(epoch),
                error.strerror,
            )
            self._epoch = epoch
            self._close_file()

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        self._epoch = None
        self._close_file()

    def __del__(self) -> None:
        self._close_file()

    def _path(self, epoch: int) -> Path:
        return self._directory / f"epoch_{epoch}{self._suffix}"

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, epoch: int, metrics: Mapping[str, float]) -> None:
        self.close()
        path = self._path(epoch)
        path.parent.mkdir(parents=True, exist_ok=True)
        header, is_whole = _read_header(path)
        self._file = path.open("ab", buffering=0)
        self._epoch = epoch
        if header:
            self._columns = header
            if not is_whole:  # its writer was killed within a line
                self._write("\n")
        else:
            self._columns = ["step", "timestamp", *order_columns(metrics)]
            self._write(_join(self._columns))

    def _write_row(self, step: int, metrics: Mapping[str, float]) -> str:
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self._now()))
        own = {"step": str(step), "timestamp": timestamp}
        return _join([own.get(name) or _write_number(metrics, name) for name in self._columns])

    def _write(self, line: str) -> None:
        """Append a line, whole or not at all."""
        if self._file is None:
            return
        data = line.encode()
        length = self._file.seek(0, io.SEEK_END)
        if self._file.write(data) != len(data):  # the disk is full
            self._file.truncate(length)
            raise OSError(28, "no space left on device")


def order_columns(names: Mapping[str, float]) -> list[str]:
    """Give the columns for these values: the fixed ones, those of further GPUs, and all others."""
    gpus = sorted(
        (int(match[1]), match[2] != "util", name)
        for name in names
        if (match := _GPU_COLUMN.fullmatch(name)) and name not in FIRST_COLUMNS
    )
    columns = [*FIRST_COLUMNS, *(name for _, _, name in gpus)]
    return columns + sorted(set(names) - set(columns))


def _read_header(path: Path) -> tuple[list[str], bool]:
    """Give the columns of a file that was begun earlier, and whether its last line is whole."""
    try:
        with path.open("rb") as file:
            first = file.readline(_LONGEST_HEADER_BYTES)
            file.seek(0, io.SEEK_END)
            if file.tell() == 0:
                return [], True
            file.seek(-1, io.SEEK_END)
            is_whole = file.read(1) == b"\n"
    except FileNotFoundError:
        return [], True
    header = first.decode(errors="replace").strip().split(",")
    if header[:2] != ["step", "timestamp"]:
        raise OSError(17, "a file that is no resource log is in the way")
    return header, is_whole


def _write_number(metrics: Mapping[str, float], name: str) -> str:
    value = metrics.get(name)
    return "" if value is None else str(round(value, 3))


def _join(cells: Sequence[str]) -> str:
    return ",".join(cells) + "\n"
