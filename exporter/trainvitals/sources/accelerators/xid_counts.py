"""Counts one device's errors by Xid code; an error that two sources report is counted once.

The driver reports an error as an event, unless the event is lost together with the device. The
kernel log, if the exporter can read it, also contains one or more lines about the error. The event
and the log lines may be read in either order.
"""

from __future__ import annotations

from collections import deque

from trainvitals.sources.accelerators.reading import XidCount

MOST_XIDS = 16
_OTHER_XIDS = -1
# The log lines of one error are written at about the same time as its event.
_SAME_ERROR_SECONDS = 10.0
# A driver that is handling a failure may report the event later.
_LATEST_EVENT_SECONDS = 60.0
_REMEMBERED_TIMES = 64


class XidCounts:
    """Counts errors by Xid code; codes after the first `MOST_XIDS` are counted together as -1."""

    def __init__(self) -> None:
        self._counts: dict[int, XidCount] = {}
        self._times: dict[int, deque[float]] = {}
        self._unreported: dict[int, float] = {}

    def count(self, code: int, at: float) -> None:
        """Count an Xid error that the driver reported.

        Args:
            code: The error's Xid code.
            at: The Unix time of the error.
        """
        logged_at = self._unreported.pop(code, None)
        if logged_at is not None and abs(at - logged_at) <= _LATEST_EVENT_SECONDS:
            return  # already counted from the kernel log
        self._add(code if code in self._counts or not self._is_full() else _OTHER_XIDS, at)

    def witness(self, code: int, at: float) -> None:
        """Count an Xid error found in the kernel log, unless the driver has reported it.

        Args:
            code: The error's Xid code.
            at: The Unix time of the error.
        """
        if code not in self._counts and self._is_full():
            return  # it may already be counted with the other codes
        if any(abs(at - time) <= _SAME_ERROR_SECONDS for time in self._times.get(code, ())):
            return
        self._unreported[code] = at
        self._add(code, at)

    def read(self) -> tuple[XidCount, ...]:
        """Return the error counts, sorted by Xid code."""
        return tuple(self._counts[code] for code in sorted(self._counts))

    def _is_full(self) -> bool:
        return len(self._counts) >= MOST_XIDS

    def _add(self, code: int, at: float) -> None:
        known = self._counts.get(code)
        last = max(at, known.last_timestamp_seconds) if known else at
        self._counts[code] = XidCount(code, (known.count if known else 0) + 1, last)
        self._times.setdefault(code, deque(maxlen=_REMEMBERED_TIMES)).append(at)
