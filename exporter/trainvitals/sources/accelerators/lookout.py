"""When to look at a driver's devices afresh."""

from __future__ import annotations

_INTERVAL_SECONDS = 5.0
_AFTER_CHANGE_SECONDS = 30.0
_LONGEST_INTERVAL_SECONDS = 60.0
_WAITED_PER_INTERVAL = 20.0


class Lookout:
    """Decides when a second reader is to look which devices there are.

    A driver's library shows the devices it found when it was started, so one that was added, or
    came back after a reset, is seen by a fresh start alone.

    - After a change was noticed: at once, then every 5 s for half a minute, since a device may need
      a while to be ready.
    - While a device is missing: after 5 s, then more and more rarely, at most a minute apart.

    All moments are of `time.monotonic`.
    """

    def __init__(self) -> None:
        self._looked_at = float("-inf")
        self._changed_at = float("-inf")
        self._missing_since: float | None = None

    @property
    def has_change(self) -> bool:
        """Whether a change was noticed since the last look."""
        return self._changed_at > self._looked_at

    def note_change(self, now: float) -> None:
        """Take note that devices seem to have come or gone."""
        self._changed_at = now

    def note_missing(self, now: float, *, is_missing: bool) -> None:
        """Take note of whether a device is missing now."""
        if not is_missing:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now

    def is_due(self, now: float) -> bool:
        """Tell whether to look now."""
        if self.has_change or now - self._changed_at < _AFTER_CHANGE_SECONDS:
            return now >= self._looked_at + _INTERVAL_SECONDS
        if self._missing_since is None:
            return False
        waited = now - self._missing_since
        interval = min(
            _LONGEST_INTERVAL_SECONDS, max(_INTERVAL_SECONDS, waited / _WAITED_PER_INTERVAL)
        )
        return now >= max(self._missing_since, self._looked_at) + interval

    def note_look(self, now: float) -> None:
        """Take note that a look was begun."""
        self._looked_at = now
