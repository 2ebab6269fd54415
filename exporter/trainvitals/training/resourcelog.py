"""The resource log: a block of lines on the console every N batches, and a CSV file per epoch.

On the console:

    [Resources] Batch 50:
      GPU 0: 87.3% util, 8192/16384 MB (50%), 72°C
      CPU: 45.2% (process: 180.5%)
      Memory: 8192/16384 MB available (50%)
      I/O: Read 75.2 MB/s, Write 6.3 MB/s, Wait 5.3%

    [Resources] ⚠️ ALERTS:
      - GPU underutilized: 42.3% (threshold: 50%)

A value that could not be read is omitted, and so is a line without values. A block that repeats the
values of the previous block ends with the line `  (the same sample as above)`.

In CSV files, which a spreadsheet or `trainvitals plot` can read:

    resource_logs/epoch_0.csv           rank 0
    resource_logs/epoch_0.rank1.csv     rank 1

    step,timestamp,gpu_0_util,gpu_0_memory_pct,cpu_percent,memory_percent,io_read_rate_mbps
    0,2025-10-07T10:00:00,85.3,50.0,45.2,48.5,75.2

`step` is the number of optimizer steps before the batch; `timestamp` is the local time without a
time zone. The five value columns shown above always come first. They are followed by the
utilisation and memory columns of each further GPU, and then by all other values sorted by name.
Lines of the same sample have the same number in the column `sample`. The header does not change
after a file has been created. If a value is missing later, its cell is empty. If a value first
appears later, it gets a column in the next file. If a file already exists, lines are appended under
its existing header. Each line is written atomically.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

PREFIX = "[Resources]"
WARNING_SIGN = "⚠️"
_GPU_KEY = re.compile(r"gpu_(\d+)_")


class Console:
    """A writer to standard output that writes nothing more after a write error.

    Args:
        write: A function that writes a text to the console; None to write to `sys.stdout`.
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write
        self._is_broken = False

    def show(self, text: str) -> None:
        """Write a text; if the console cannot encode it, replace non-ASCII characters with `?`."""
        if self._is_broken or not text:
            return
        if self._write is not None:
            self._write(text)
            return
        try:
            try:
                sys.stdout.write(text)
            except UnicodeEncodeError:
                sys.stdout.write(text.encode("ascii", "replace").decode())
            sys.stdout.flush()
        except (
            OSError,
            ValueError,
            AttributeError,
        ):  # standard output is closed, missing, or has no reader
            self._is_broken = True


def write_block(batch: int, metrics: Mapping[str, float], *, is_repeated: bool = False) -> str:
    """Return the console block for a reading, with the available share of memory in percent.

    Args:
        batch: The number of the batch after which the reading was made.
        metrics: The values of the reading by name.
        is_repeated: Whether the previous block showed the same reading.
    """
    lines = [f"{PREFIX} Batch {batch}:"]
    for gpu in sorted({int(match[1]) for key in metrics if (match := _GPU_KEY.match(key))}):
        lines += _write_line(f"GPU {gpu}", _write_gpu(f"gpu_{gpu}_", metrics))
    lines += _write_line("CPU", _write_cpu(metrics))
    lines += _write_line("Memory", _write_memory(metrics))
    lines += _write_line(
        "I/O",
        [
            *_write_value("Read {:.1f} MB/s", metrics.get("io_read_rate_mbps")),
            *_write_value("Write {:.1f} MB/s", metrics.get("io_write_rate_mbps")),
            *_write_value("Wait {:.1f}%", metrics.get("io_wait_pct")),
        ],
    )
    if is_repeated:
        lines.append("  (the same sample as above)")
    return "\n".join(lines) + "\n"


def write_alerts(texts: Iterable[str]) -> str:
    """Return the console block for new alerts, preceded by an empty line."""
    return f"\n{PREFIX} {WARNING_SIGN} ALERTS:\n" + "".join(f"  - {text}\n" for text in texts)


def write_cleared(texts: Iterable[str]) -> str:
    """Return one console line per cleared alert, with the value that cleared the alert."""
    return "".join(f"{PREFIX} cleared: {text}\n" for text in texts)


def _write_gpu(prefix: str, metrics: Mapping[str, float]) -> list[str]:
    parts = _write_value("{:.1f}% util", metrics.get(f"{prefix}util"))
    used, total = metrics.get(f"{prefix}memory_used_mb"), metrics.get(f"{prefix}memory_total_mb")
    if used is not None and total:
        parts.append(f"{used:.0f}/{total:.0f} MB ({100 * used / total:.0f}%)")
    return parts + _write_value("{:.0f}°C", metrics.get(f"{prefix}temp_c"))


def _write_cpu(metrics: Mapping[str, float]) -> list[str]:
    machine, process = metrics.get("cpu_percent"), metrics.get("cpu_process_percent")
    if machine is None:
        return _write_value("process: {:.1f}%", process)
    return [f"{machine:.1f}%" + ("" if process is None else f" (process: {process:.1f}%)")]


def _write_memory(metrics: Mapping[str, float]) -> list[str]:
    available, total = metrics.get("memory_available_mb"), metrics.get("memory_system_mb")
    if available is None or not total:
        return []
    share = 100 * available / total
    return [f"{available:.0f}/{total:.0f} MB available ({share:.0f}%)"]


def _write_value(form: str, value: float | None) -> list[str]:
    return [] if value is None else [form.format(value)]


def _write_line(subject: str, parts: list[str]) -> list[str]:
    return [f"  {subject}: {', '.join(parts)}"] if parts else []


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
    """The CSV files in which one rank's readings are stored.

    Args:
        directory: The directory of the CSV files; the directory and its parents are created when
            first needed.
        rank: The rank whose readings are written.
        now: A clock that returns Unix time in seconds.
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
        """Append a reading as a line to the CSV file of an epoch.

        If a write fails, a warning is logged and no more readings of this epoch are written.
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
        """Close the current CSV file; the next call of `append` opens a file again."""
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
            if not is_whole:  # the writer was killed while writing a line
                self._write("\n")
        else:
            self._columns = ["step", "timestamp", *order_columns(metrics)]
            self._write(_join(self._columns))

    def _write_row(self, step: int, metrics: Mapping[str, float]) -> str:
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self._now()))
        own = {"step": str(step), "timestamp": timestamp}
        return _join([own.get(name) or _write_number(metrics, name) for name in self._columns])

    def _write(self, line: str) -> None:
        """Append a line to the open CSV file atomically."""
        if self._file is None:
            return
        data = line.encode()
        length = self._file.seek(0, io.SEEK_END)
        if self._file.write(data) != len(data):  # the disk is full
            self._file.truncate(length)
            raise OSError(28, "no space left on device")


def order_columns(names: Mapping[str, float]) -> list[str]:
    """Return the CSV columns: fixed columns, then those of further GPUs, then all other values."""
    gpus = sorted(
        (int(match[1]), match[2] != "util", name)
        for name in names
        if (match := _GPU_COLUMN.fullmatch(name)) and name not in FIRST_COLUMNS
    )
    columns = [*FIRST_COLUMNS, *(name for _, _, name in gpus)]
    return columns + sorted(set(names) - set(columns))


def _read_header(path: Path) -> tuple[list[str], bool]:
    """Return the columns of an existing CSV file, and whether its last line is complete."""
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
        raise OSError(17, "the existing file is not a resource log")
    return header, is_whole


def _write_number(metrics: Mapping[str, float], name: str) -> str:
    value = metrics.get(name)
    return "" if value is None else str(round(value, 3))


def _join(cells: Sequence[str]) -> str:
    return ",".join(cells) + "\n"
