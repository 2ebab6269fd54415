"""Rounds of reading: every device of an open driver, a hung one apart from the others."""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from trainvitals.crew import Crew
from trainvitals.sources.accelerators.row import DeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Mapping

    from trainvitals.crew import Outcome
    from trainvitals.sources.accelerators.row import DeviceRow
    from trainvitals.sources.accelerators.vendor import Device, Session

PATIENCE_FACTOR = 20.0
TURN_FACTOR = 4.0
LONGEST_TURN_RATIO = 0.25
SHORTEST_PATIENCE_SECONDS = 0.25
_REMEMBERED_DURATIONS = 8


class Rounds:
    """Reads every device of a session, again and again.

    Args:
        session: The open driver.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._posts = [_Post(device) for device in session.devices]
        self._crew = Crew(name="device", limit=len(self._posts) + 1)

    def read(
        self, patience: float, since: Mapping[str, int | None]
    ) -> tuple[list[tuple[object, ...]], list[tuple[str, str]], bool]:
        """Read every device.

        Args:
            patience: Seconds to wait at most; a device that is known to be quick is waited for
                less.
            since: For each UUID, the newest sample that was already counted; see `Device.read`.

        Returns:
            A UUID and a `DeviceRow` for each device that was read; UUID and state of those that
            were not; whether the driver still shows the devices that it showed when it was opened.

        Raises:
            DriverGoneError: No device can be read any more.
        """
        outcomes = self._read_all(patience, since)
        rows, states = _sort(self._posts, outcomes)
        return rows, states, self._session.is_current()

    def close(self) -> None:
        """Let the idle workers go."""
        self._crew.close()

    def _read_all(
        self, patience: float, since: Mapping[str, int | None]
    ) -> list[Outcome[DeviceRow]]:
        tasks = {post.uuid: partial(post.read, since.get(post.uuid)) for post in self._posts}
        longest = self._find_longest()
        if self._session.parallel > 1:
            outcomes = self._crew.gather(tasks, _shorten(patience, PATIENCE_FACTOR, longest))
        else:
            turn = _shorten(patience * LONGEST_TURN_RATIO, TURN_FACTOR, longest)
            outcomes = self._crew.gather(tasks, patience, turn=turn)
        return [outcomes[post.uuid] for post in self._posts]

    def _find_longest(self) -> float | None:
        """How long a device took lately at most; None before each was read once."""
        known = [longest for post in self._posts if (longest := post.longest()) is not None]
        return max(known) if known and len(known) == len(self._posts) else None


def _shorten(seconds: float, factor: float, longest: float | None) -> float:
    """Shorten a wait to so many times what a device took lately, where that is known."""
    if longest is None:
        return seconds
    return min(seconds, max(SHORTEST_PATIENCE_SECONDS, factor * longest))


def _sort(
    posts: list[_Post], outcomes: list[Outcome[DeviceRow]]
) -> tuple[list[tuple[object, ...]], list[tuple[str, str]]]:
    rows: list[tuple[object, ...]] = []
    states: list[tuple[str, str]] = []
    for post, outcome in zip(posts, outcomes, strict=True):
        if outcome.value is not None:
            rows.append((post.uuid, *outcome.value))
        elif outcome.late:
            states.append((post.uuid, "hung"))
        elif isinstance(outcome.error, DeviceError):
            states.append((post.uuid, outcome.error.state))
        elif outcome.error is not None:
            raise outcome.error  # the driver is gone, or a bug
    return rows, states


class _Post:
    """A device and how long its readings took."""

    def __init__(self, device: Device) -> None:
        self.uuid = device.identity[2]
        self._device = device
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)

    def read(self, since: int | None) -> DeviceRow:
        started_at = time.monotonic()
        try:
            return self._device.read(since)
        finally:
            self._durations.append(time.monotonic() - started_at)

    def longest(self) -> float | None:
        """How long it took lately at most; None before the first reading."""
        return max(self._durations) if self._durations else None
