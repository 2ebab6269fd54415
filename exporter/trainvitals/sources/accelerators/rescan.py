"""The schedule for rescans of a driver's devices, and the files whose changes trigger a rescan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainvitals.sources.files import Roots


class Traces:
    """Detects in a few directory listings that a driver or a device was added or removed.

    Args:
        paths: The files and directories to list; each path begins with `proc/` or `sys/`.
        roots: The file systems that contain the paths.
    """

    def __init__(self, paths: Sequence[str], roots: Roots) -> None:
        self._paths = tuple(_locate(path, roots) for path in paths)
        self._seen = self._list()

    def have_changed(self) -> bool:
        """Return whether a file or a directory entry was added or removed since the last call."""
        before, self._seen = self._seen, self._list()
        return self._seen != before

    def _list(self) -> tuple[object, ...]:
        return tuple(_list_entries(path) for path in self._paths)


def _locate(trace: str, roots: Roots) -> Path:
    tree, _, rest = trace.partition("/")
    return {"proc": roots.procfs, "sys": roots.sysfs}[tree] / rest


def _list_entries(trace: Path) -> object:
    """Return a directory's entries, True for a file, or None for a path that cannot be listed."""
    try:
        return frozenset(os.listdir(trace))  # noqa: PTH208 - on every scrape
    except NotADirectoryError:
        return True
    except OSError:
        return None


_INTERVAL_SECONDS = 5.0
_AFTER_CHANGE_SECONDS = 30.0
_LONGEST_INTERVAL_SECONDS = 60.0
_WAITED_PER_INTERVAL = 20.0


class RescanSchedule:
    """Decides when a second reader rescans the devices.

    A driver's library lists only the devices that existed when the library was loaded. Therefore,
    only a newly loaded library lists a device that was added or that returned after a reset.

    - After a change, a rescan is due immediately, and then every 5 s for 30 s, because a device may
      not be ready at once.
    - While a device is missing, a rescan is due after 5 s, and then at intervals that grow to one
      minute.

    The times in the methods' arguments are `time.monotonic` values.
    """

    def __init__(self) -> None:
        self._scanned_at = float("-inf")
        self._changed_at = float("-inf")
        self._missing_since: float | None = None

    @property
    def has_change(self) -> bool:
        """Whether a change has been detected since the last rescan."""
        return self._changed_at > self._scanned_at

    def note_change(self, now: float) -> None:
        """Record that devices may have been added or removed."""
        self._changed_at = now

    def note_missing(self, now: float, *, is_missing: bool) -> None:
        """Record whether a device is missing now."""
        if not is_missing:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now

    def is_due(self, now: float) -> bool:
        """Return whether a rescan is due at the given time."""
        if self.has_change or now - self._changed_at < _AFTER_CHANGE_SECONDS:
            return now >= self._scanned_at + _INTERVAL_SECONDS
        if self._missing_since is None:
            return False
        waited = now - self._missing_since
        interval = min(
            _LONGEST_INTERVAL_SECONDS, max(_INTERVAL_SECONDS, waited / _WAITED_PER_INTERVAL)
        )
        return now >= max(self._missing_since, self._scanned_at) + interval

    def note_rescan(self, now: float) -> None:
        """Record that a rescan has started."""
        self._scanned_at = now
