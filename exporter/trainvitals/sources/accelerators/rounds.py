"""Rounds of reading: every device of an open driver, a hung one apart from the others."""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from trainvitals.crew import Crew
from trainvitals.sources.accelerators.row import DeviceError, DriverGoneError

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Callable, Mapping, Sequence

    from trainvitals.crew import Outcome
    from trainvitals.sources.accelerators.row import DeviceRow
    from trainvitals.sources.accelerators.vendor import Device, Session

PATIENCE_FACTOR = 20.0
TURN_FACTOR = 4.0
LONGEST_TURN_RATIO = 0.25
SHORTEST_PATIENCE_SECONDS = 0.25
_REMEMBERED_DURATIONS = 8
_COUNT = "count"


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
    ) -> tuple[list[tuple[object, ...]], list[tuple[str, str]], bool, list[str]]:
        """Read every device.

        Args:
            patience: Seconds to wait at most; a device that is known to be quick is waited for
                less.
            since: For each UUID, the newest sample that was already counted; see `Device.read`.

        Returns:
            A UUID and a `DeviceRow` for each device that was read; UUID and state of those that
            were not; whether the driver still shows the devices that it showed when it was opened,
            as far as it tells; and what went wrong that should not have, in words.

        Raises:
            DriverGoneError: No device can be read any more.
        """
        outcomes = self._read_all(patience, since)
        rows, states, troubles = _sort(self._posts, outcomes)
        count = outcomes[_COUNT]
        if count.error is not None:
            raise count.error
        if count.late:
            troubles.append("the driver call that counts the devices hangs")
        return rows, states, count.late or bool(count.value), troubles

    def close(self) -> None:
        """Let the idle workers go."""
        self._crew.close()

    def _read_all(
        self, patience: float, since: Mapping[str, int | None]
    ) -> dict[str, Outcome[DeviceRow | bool]]:
        tasks: dict[str, Callable[[], DeviceRow | bool]] = {
            post.uuid: partial(post.read, since.get(post.uuid), patience) for post in self._posts
        }
        tasks[_COUNT] = self._session.is_current
        known = [longest for post in self._posts if (longest := post.longest()) is not None]
        if self._session.parallel > 1:
            return self._crew.gather(tasks, _shorten(patience, PATIENCE_FACTOR, known, max))
        patience = _shorten(patience, PATIENCE_FACTOR, known, sum)
        turn = _shorten(LONGEST_TURN_RATIO * patience, TURN_FACTOR, known, max)
        return self._crew.gather(tasks, patience, turn=turn)


def _shorten(
    seconds: float,
    factor: float,
    known: Sequence[float],
    combine: Callable[[Sequence[float]], float],
) -> float:
    """Shorten a wait to so many times what devices took lately, where that is known."""
    if not known:
        return seconds
    return min(seconds, max(SHORTEST_PATIENCE_SECONDS, factor * combine(known)))


def _sort(
    posts: list[_Post], outcomes: Mapping[str, Outcome[DeviceRow | bool]]
) -> tuple[list[tuple[object, ...]], list[tuple[str, str]], list[str]]:
    rows: list[tuple[object, ...]] = []
    states: list[tuple[str, str]] = []
    troubles: list[str] = []
    for post in posts:
        outcome = outcomes[post.uuid]
        if isinstance(outcome.value, tuple):
            rows.append((post.uuid, *outcome.value))
        elif outcome.late:
            states.append((post.uuid, "hung"))
        elif isinstance(outcome.error, DeviceError):
            states.append((post.uuid, outcome.error.state))
        elif isinstance(outcome.error, DriverGoneError):
            raise outcome.error
        else:  # a bug in the reader costs this device alone
            states.append((post.uuid, "unsupported"))
            troubles.append(f"{post.uuid}: {type(outcome.error).__name__}: {outcome.error}")
    return rows, states, troubles


class _Post:
    """A device and how long its readings took."""

    def __init__(self, device: Device) -> None:
        self.uuid = device.identity[2]
        self._device = device
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)

    def read(self, since: int | None, patience: float) -> DeviceRow:
        started_at = time.monotonic()
        try:
            return self._device.read(since)
        finally:
            duration = time.monotonic() - started_at
            if duration <= patience:  # what no scrape would have waited for tells nothing
                self._durations.append(duration)

    def longest(self) -> float | None:
        """How long it took lately at most; None before the first reading."""
        return max(self._durations) if self._durations else None
