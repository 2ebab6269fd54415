"""Follow the kernel log through `/dev/kmsg`, and count its OOM kills and Xids.

Each record of `/dev/kmsg` has the form `priority,sequence,microseconds,flags;text`, and may be
followed by lines that begin with a space. The microseconds are counted by a clock that starts at
boot, stops while the machine is suspended, and is not adjusted by a time daemon. Therefore, the
times of records from before the first read are wrong by several seconds per week of uptime. The
time of a later record is corrected to be between the two reads before and after the record.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.sources.host.kernel_lines import (
    MOST_LINES,
    DatedLine,
    KernelLines,
    KernelNews,
    XidError,
)
from trainvitals.sources.host.oom_lines import OomKill

if TYPE_CHECKING:
    from trainvitals.sources.containers.evidence import Gap

__all__ = ["DatedLine", "KernelLog", "KernelNews"]

_KMSG = Path("/dev/kmsg")
# The maximum size of a record is 8 KiB.
_CHUNK_BYTES = 1 << 14
# The largest ring buffer contains fewer records; the next call reads any further records.
_MOST_READS = 1 << 17
_MOST_REMEMBERED = 256
_MICROSECONDS = 1_000_000
_LONGEST_NUMBER = 18
_FIELDS = 3
_REMEDY = (
    "give it CAP_SYSLOG: for a container `--cap-add SYSLOG --device /dev/kmsg` and user root, "
    "for a systemd unit `AmbientCapabilities=CAP_SYSLOG`"
)


class KernelLog:
    """Follows the kernel log; each instance has its own position in the log.

    Args:
        path: The path of the device `/dev/kmsg`, or of a regular file with records in the same
            format.
        clock: A function that returns the time of day, in seconds since 1970.
        monotonic: A function that returns the seconds since boot, excluding time in suspension.
        read: A function that reads at most a given number of bytes from a file descriptor, such as
            `os.read`.
        most_lines: The maximum number of lines about other problems to return from one read; 0 to
            return no such lines.
    """

    def __init__(
        self,
        path: Path = _KMSG,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        read: Callable[[int, int], bytes] = os.read,
        most_lines: int = MOST_LINES,
    ) -> None:
        self._path = path
        self._clock = clock
        self._monotonic = monotonic
        self._read = read
        self._descriptor: int | None = None
        self._error: OSError | None = None
        self._rest = b""
        self._next_sequence: int | None = None
        self._resume_at = 0
        self._skips = False
        self._drained: float | None = None
        self._lines = KernelLines(most_lines)
        self._oom_kills: deque[OomKill] = deque(maxlen=_MOST_REMEMBERED)
        self._xids: deque[XidError] = deque(maxlen=_MOST_REMEMBERED)
        self._telling: deque[DatedLine] = deque(maxlen=_MOST_REMEMBERED)

    @property
    def is_readable(self) -> bool:
        """Whether this user can read the kernel log."""
        return self._open() is not None

    @property
    def why_not(self) -> Gap | None:
        """The reason why the kernel log cannot be read, and the remedy; None if it is readable."""
        if self.is_readable or self._error is None:
            return None
        from trainvitals.sources.containers.evidence import Gap  # noqa: PLC0415 - for deaths only

        if self._error.errno == errno.ENOENT:
            return Gap("the kernel log", f"there is no {self._path}", _REMEDY)
        return Gap("the kernel log", f"{self._path}: {self._error.strerror}", _REMEDY)

    def skip(self) -> None:
        """Skip the log's existing records, so that only later records are read."""
        self._skips = True
        self.close()
        self._open()

    def read(self) -> KernelNews:
        """Read the records that were written since the last call, without blocking.

        The first call reads all records in the kernel's ring buffer, unless `skip` was called. The
        result is empty if the log cannot be read.
        """
        descriptor = self._open()
        if descriptor is None:
            return KernelNews()
        now = self._clock()
        boot_time = now - self._monotonic()
        lost = 0
        for _ in range(_MOST_READS):
            try:
                data = self._read(descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                # EPIPE: records were overwritten, and the next read returns the oldest record.
                # EINVAL: the record is too long and is skipped. The sequence number of the next
                # record shows how many records are missing.
                if error.errno in {errno.EPIPE, errno.EINVAL}:
                    continue
                self.close()
                self._error = error
                break
            if not data:
                break
            lost += self._take(data, boot_time, now)
        self._drained = now
        return self._remember(self._lines.collect(lost=lost, ends=False))

    def recall(self, since: float) -> KernelNews:
        """Return the events since a given time that `read` has returned.

        At most the last 256 events of each kind are returned.

        Args:
            since: The given time, in seconds since 1970.
        """
        return KernelNews(
            oom_kills=tuple(kill for kill in self._oom_kills if kill.time >= since),
            xids=tuple(xid for xid in self._xids if xid.time >= since),
            lines=tuple(line for line in self._telling if line.time is None or line.time >= since),
        )

    def close(self) -> None:
        """Close the kernel log; the next read reopens it and continues after the last record."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._rest = b""
        self._resume_at = self._next_sequence or 0

    def _open(self) -> int | None:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._error = None
                if self._skips and self._next_sequence is None:
                    os.lseek(self._descriptor, 0, os.SEEK_END)
                    self._drained = self._clock()
            except OSError as error:
                self._error = error
        return self._descriptor

    def _take(self, data: bytes, boot_time: float, now: float) -> int:
        """Parse bytes from the log, and return the number of records that were lost before them."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_CHUNK_BYTES]
        return sum(self._take_line(line, boot_time, now) for line in lines)

    def _take_line(self, line: bytes, boot_time: float, now: float) -> int:
        head, _, text = line.partition(b";")
        fields = head.split(b",")
        if line.startswith(b" ") or len(fields) < _FIELDS:
            return 0
        sequence, micros = _parse(fields[1]), _parse(fields[2])
        if sequence is None or micros is None:
            return 0
        if sequence < self._resume_at:  # the record was read before the log was reopened
            return 0
        lost = 0 if self._next_sequence is None else max(0, sequence - self._next_sequence)
        self._next_sequence = sequence + 1
        written = boot_time + micros / _MICROSECONDS
        if self._drained is not None:
            written = max(written, self._drained)
        self._lines.take(min(written, now), text.decode(errors="replace"))
        return lost

    def _remember(self, news: KernelNews) -> KernelNews:
        self._oom_kills.extend(news.oom_kills)
        self._xids.extend(news.xids)
        self._telling.extend(news.lines)
        return news


def _parse(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) <= _LONGEST_NUMBER else None


# The kernel's names of OOM constraints and the corresponding label values, in the order of the
# metrics page. A kill without a constraint is due to a lack of memory on the host.
CONSTRAINTS: Mapping[str, str] = {
    "CONSTRAINT_MEMCG": "memcg",
    "CONSTRAINT_NONE": "host",
    "CONSTRAINT_CPUSET": "cpuset",
    "CONSTRAINT_MEMORY_POLICY": "memory_policy",
}
_DOMAIN_DIGITS = 8


@dataclass(frozen=True, slots=True)
class XidCount:
    """The number of errors with a given Xid code on a given GPU.

    Attributes:
        bus_id: The GPU's PCI address as NVML writes it, such as `00000000:3B:00.0`.
        code: The Xid code of the errors.
        errors: The number of errors since the exporter started; 0 if all errors occurred earlier.
        last: The time of the last error, in seconds since 1970.
    """

    bus_id: str
    code: int
    errors: int
    last: float


@dataclass(frozen=True, slots=True)
class KernelTallyReading:
    """The numbers of OOM kills and GPU errors in the kernel log.

    Attributes:
        oom_kills: The number of processes killed since the exporter started, by constraint; None if
            the kernel log cannot be read.
        xids: The GPU error counts, sorted by PCI address and Xid code.
        omitted: The number of combinations of GPU and Xid code that were omitted because of the
            limit on `xids`.
    """

    oom_kills: Mapping[str, int] | None
    xids: tuple[XidCount, ...] = ()
    omitted: int = 0


class KernelTally:
    """Counts the OOM kills and Xids in the kernel log.

    Events from before this object was created are not counted, but a GPU error from before that
    time is included in the reading with its time.

    Args:
        path: The path of the device `/dev/kmsg`.
        most: The maximum number of combinations of GPU and Xid code to count.
        clock: A function that returns the time of day, in seconds since 1970.
        monotonic: A function that returns the seconds since boot, excluding time in suspension.
    """

    def __init__(
        self,
        path: Path = Path("/dev/kmsg"),
        *,
        most: int = 64,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = KernelLog(path, clock=clock, monotonic=monotonic, most_lines=0)
        self._most = most
        self._since = clock()
        self._kills = dict.fromkeys(CONSTRAINTS.values(), 0)
        self._xids: dict[tuple[str, int], XidCount] = {}
        self._omitted: set[tuple[str, int]] = set()

    def read(self) -> KernelTallyReading:
        """Count the events that were logged since the last call, and return the total counts."""
        if not self._log.is_readable:
            return KernelTallyReading(None)
        news = self._log.read()
        for kill in news.oom_kills:
            if kill.time >= self._since and kill.constraint in CONSTRAINTS:
                self._kills[CONSTRAINTS[kill.constraint]] += 1
        for xid in news.xids:
            self._count(xid)
        xids = tuple(self._xids[key] for key in sorted(self._xids))
        return KernelTallyReading(dict(self._kills), xids, len(self._omitted))

    def close(self) -> None:
        """Close the kernel log."""
        self._log.close()

    def _count(self, xid: XidError) -> None:
        key = name_as_nvml(xid.bus_id), xid.code
        known = self._xids.get(key)
        if known is None and len(self._xids) >= self._most:
            if len(self._omitted) < self._most:
                self._omitted.add(key)
            return
        errors = (known.errors if known else 0) + (xid.time >= self._since)
        self._xids[key] = XidCount(*key, errors, xid.time)


def name_as_nvml(bus_id: str) -> str:
    """Return a PCI address in NVML's format, such as `00000000:3B:00.0`."""
    domain, _, rest = bus_id.partition(":")
    rest = rest if "." in rest else f"{rest}.0"
    return f"{domain.rjust(_DOMAIN_DIGITS, '0')}:{rest}".upper()
