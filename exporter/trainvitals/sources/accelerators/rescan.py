"""The schedule for listing a driver's devices again, and the files that show a change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainvitals.sources.files import Roots


class Traces:
    """Detects that a driver or a device was added or removed, by a few directory listings.

    Args:
        paths: Files and directories; each path begins with `proc/` or `sys/`.
        roots: The file systems in which they are found.
    """

    def __init__(self, paths: Sequence[str], roots: Roots) -> None:
        self._paths = tuple(_locate(path, roots) for path in paths)
        self._seen = self._list()

    def have_changed(self) -> bool:
        """Return whether anything was added or removed since the last call."""
        before, self._seen = self._seen, self._list()
        return self._seen != before

    def _list(self) -> tuple[object, ...]:
        return tuple(_list_entries(path) for path in self._paths)


def _locate(trace: str, roots: Roots) -> Path:
    tree, _, rest = trace.partition("/")
    return {"proc": roots.procfs, "sys": roots.sysfs}[tree] / rest


def _list_entries(trace: Path) -> object:
    """Return the entries of a directory, True for a file, None if there is neither."""
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
    """Decides when a second reader lists the devices again.

    A driver's library lists the devices that existed when it was loaded, so a device that was
    added, or returned after a reset, is only visible to a newly loaded library.

    - After a change was noticed: at once, then every 5 s for half a minute, since a device may need
      a while to be ready.
    - While a device is missing: after 5 s, then more and more rarely, at most a minute apart.

    All times are of `time.monotonic`.
    """

    def __init__(self) -> None:
        self._scanned_at = float("-inf")
        self._changed_at = float("-inf")
        self._missing_since: float | None = None

    @property
    def has_change(self) -> bool:
        """Whether a change was noticed since the last rescan."""
        return self._changed_at > self._scanned_at

    def note_change(self, now: float) -> None:
        """Record that devices seem to have been added or removed."""
        self._changed_at = now

    def note_missing(self, now: float, *, is_missing: bool) -> None:
        """Record whether a device is missing now."""
        if not is_missing:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now

    def is_due(self, now: float) -> bool:
        """Return whether a rescan is due."""
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
        """Record that a rescan was begun."""
        self._scanned_at = now
