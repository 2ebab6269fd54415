"""The errors of one device by code, each counted once although two sources report it.

The driver reports an error as an event, unless it loses that with the device; the kernel log has a
line for it, or several, if the exporter may read that. Either may be the first to be read.
"""

from __future__ import annotations

from collections import deque

from trainvitals.sources.accelerators.reading import XidCount

MOST_XIDS = 16
_OTHER_XIDS = -1
# The lines of one error come at once, and near its event.
_SAME_ERROR_SECONDS = 10.0
# A driver that is busy with a failure may report its event later.
_LATEST_EVENT_SECONDS = 60.0
_REMEMBERED_TIMES = 64


class XidCounts:
    """Counts the errors; codes past the bound are counted together as -1."""

    def __init__(self) -> None:
        self._counts: dict[int, XidCount] = {}
        self._times: dict[int, deque[float]] = {}
        self._unreported: dict[int, float] = {}

    def count(self, code: int, at: float) -> None:
        """Count an error that the driver reported.

        Args:
            code: The driver's number for it.
            at: Unix time.
        """
        logged_at = self._unreported.pop(code, None)
        if logged_at is not None and abs(at - logged_at) <= _LATEST_EVENT_SECONDS:
            return  # counted when it was found in the kernel log
        self._add(code if code in self._counts or not self._is_full() else _OTHER_XIDS, at)

    def witness(self, code: int, at: float) -> None:
        """Count an error that the kernel log has, unless the driver reported it.

        Args:
            code: The number of the error.
            at: Unix time.
        """
        if code not in self._counts and self._is_full():
            return  # whether it is among the others cannot be told
        if any(abs(at - time) <= _SAME_ERROR_SECONDS for time in self._times.get(code, ())):
            return
        self._unreported[code] = at
        self._add(code, at)

    def read(self) -> tuple[XidCount, ...]:
        """Return the counts, by code."""
        return tuple(self._counts[code] for code in sorted(self._counts))

    def _is_full(self) -> bool:
        return len(self._counts) >= MOST_XIDS

    def _add(self, code: int, at: float) -> None:
        known = self._counts.get(code)
        last = max(at, known.last_timestamp_seconds) if known else at
        self._counts[code] = XidCount(code, (known.count if known else 0) + 1, last)
        self._times.setdefault(code, deque(maxlen=_REMEMBERED_TIMES)).append(at)
