"""The kernel's own log, followed through `/dev/kmsg`, and read from what somebody saved of it.

Each record of `/dev/kmsg` is `priority,sequence,microseconds,flags;text`, and lines that begin with
a blank follow it. The microseconds are of a clock that starts at boot, stands still while the
machine sleeps, and is not kept right by a time daemon; so what is read between two looks is known
to lie between them, and what the ring had before the first one is off by some seconds a week.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from trainvitals.causes.evidence import Gap, OomKill, XidError
from trainvitals.sources.kernel_lines import KernelLine, KernelLines, KernelNews
from trainvitals.sources.kernel_text import parse_kernel_text

__all__ = ["KernelLine", "KernelLog", "KernelNews", "parse_kernel_text"]

_KMSG = Path("/dev/kmsg")
# One record has at most 8 KiB.
_CHUNK_BYTES = 1 << 14
# More than the largest ring has; a kernel that writes faster than that is read on the next time.
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
    """Follows the kernel's log; several may do so at once, each from its own place.

    Args:
        path: The device; a regular file with such records will do.
        clock: The time of day, in seconds since 1970.
        monotonic: Seconds since boot, without the time that the machine slept.
        read: Reads so many bytes of an open file.
    """

    def __init__(
        self,
        path: Path = _KMSG,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        read: Callable[[int, int], bytes] = os.read,
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
        self._drained: float | None = None
        self._lines = KernelLines()
        self._oom_kills: deque[OomKill] = deque(maxlen=_MOST_REMEMBERED)
        self._xids: deque[XidError] = deque(maxlen=_MOST_REMEMBERED)
        self._telling: deque[KernelLine] = deque(maxlen=_MOST_REMEMBERED)

    @property
    def is_readable(self) -> bool:
        """Whether it can be read by us."""
        return self._open() is not None

    @property
    def why_not(self) -> Gap | None:
        """Why it cannot be read, and what would change that; None where it can."""
        if self.is_readable or self._error is None:
            return None
        if self._error.errno == errno.ENOENT:
            return Gap("the kernel log", f"there is no {self._path}", _REMEDY)
        return Gap("the kernel log", f"{self._path}: {self._error.strerror}", _REMEDY)

    def read(self) -> KernelNews:
        """Read what came since the last call, or at the first one what the ring still has.

        Nothing where the log cannot be read. It never waits.
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
                # Overwritten (EPIPE): the next read gives the oldest there is. Too long (EINVAL):
                # it is passed over. The sequence tells how many are missing.
                if error.errno in {errno.EPIPE, errno.EINVAL}:
                    continue
                self.close()
                self._error = error
                break
            if not data:
                break
            lost += self._take(data, boot_time, now)
        self._drained = now
        return self._remember(self._lines.give(lost=lost, ends=False))

    def find_oom_kills(self, container_id: str, since: float = 0.0) -> tuple[OomKill, ...]:
        """Find the kills in a container's control group among the last 256 that were read.

        Args:
            container_id: The container's whole ID.
            since: The earliest time, seconds since 1970.
        """
        return tuple(
            kill
            for kill in self._oom_kills
            if kill.time >= since and container_id and container_id in kill.task_memcg
        )

    def find_xids(self, since: float = 0.0) -> tuple[XidError, ...]:
        """Find the errors of GPUs since a time, in seconds since 1970, among the last 256."""
        return tuple(xid for xid in self._xids if xid.time >= since)

    def recall(self, since: float) -> KernelNews:
        """Give what was read and is not older, of each kind the last 256 at most.

        Args:
            since: The earliest time, seconds since 1970.
        """
        return KernelNews(
            oom_kills=tuple(kill for kill in self._oom_kills if kill.time >= since),
            xids=self.find_xids(since),
            lines=tuple(line for line in self._telling if line.time >= since),
        )

    def close(self) -> None:
        """Close the file; the next read opens it again and goes on where this one ended."""
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
            except OSError as error:
                self._error = error
        return self._descriptor

    def _take(self, data: bytes, boot_time: float, now: float) -> int:
        """Take what was read; give how many records are missing before it."""
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
        if sequence < self._resume_at:  # known since before the file was opened again
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
