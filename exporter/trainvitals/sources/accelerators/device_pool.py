"""Reads all devices of an open driver in parallel, so that a hung device delays no other device."""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from trainvitals.sources.accelerators.row import DeviceError, DriverGoneError
from trainvitals.workers import WorkerPool

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Callable, Mapping, Sequence

    from trainvitals.sources.accelerators.row import DeviceRow
    from trainvitals.sources.accelerators.vendor import Device, Session
    from trainvitals.workers import Outcome

PATIENCE_FACTOR = 20.0
TURN_FACTOR = 4.0
LONGEST_TURN_RATIO = 0.25
SHORTEST_PATIENCE_SECONDS = 0.25
_REMEMBERED_DURATIONS = 8
_COUNT = "count"


class DevicePool:
    """Reads every device of a session repeatedly.

    Args:
        session: The open driver.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._devices = [_TimedDevice(device) for device in session.devices]
        self._pool = WorkerPool(name="device", limit=len(self._devices) + 1)

    def read(
        self, patience: float, since: Mapping[str, int | None]
    ) -> tuple[list[tuple[object, ...]], list[tuple[str, str]], bool, list[str]]:
        """Read every device of the session.

        Args:
            patience: The maximum time to wait, in seconds; the wait is shorter for devices whose
                recent readings were quick.
            since: The timestamp of the newest sample that was already counted, by device UUID; see
                `Device.read`.

        Returns:
            A UUID and a `DeviceRow` for each device that was read; the UUID and state of each
            device that could not be read; whether the driver still lists the devices that it listed
            when it was opened, or the devices could not be counted; and a description of each
            unexpected error or answer.

        Raises:
            DriverGoneError: The driver is gone, so that no device can be read.
        """
        outcomes = self._read_all(patience, since)
        if any(isinstance(outcome.error, DriverGoneError) for outcome in outcomes.values()):
            self._confirm_gone(outcomes)
        rows, states, troubles = _sort(self._devices, outcomes)
        count = outcomes[_COUNT]
        if count.late:
            troubles.append("the driver call that counts the devices hangs")
        elif count.error is not None:  # a bug in the reader
            troubles.append(f"{type(count.error).__name__}: {count.error}")
        troubles += self._session.troubles
        return rows, states, count.value is None or bool(count.value), troubles

    def close(self) -> None:
        """Stop the pool's idle workers."""
        self._pool.close()

    def _confirm_gone(self, outcomes: Mapping[str, Outcome[DeviceRow | bool]]) -> None:
        """Raise a `DriverGoneError` from the outcomes, unless the driver still responds.

        If a device's reading failed with this error and another device could be read, the driver is
        queried again. The error is raised only if the second query fails with the same error.
        """
        gone = [o.error for o in outcomes.values() if isinstance(o.error, DriverGoneError)]
        is_counted = outcomes[_COUNT].error not in gone
        if is_counted and any(isinstance(o.value, tuple) for o in outcomes.values()):
            again = self._pool.gather(
                {_COUNT: self._session.is_current}, SHORTEST_PATIENCE_SECONDS
            )[_COUNT]
            gone = [again.error] if isinstance(again.error, DriverGoneError) else []
        if gone:
            raise gone[0]

    def _read_all(
        self, patience: float, since: Mapping[str, int | None]
    ) -> dict[str, Outcome[DeviceRow | bool]]:
        tasks: dict[str, Callable[[], DeviceRow | bool]] = {
            device.uuid: partial(device.read, since.get(device.uuid), patience)
            for device in self._devices
        }
        tasks[_COUNT] = self._session.is_current
        known = [longest for device in self._devices if (longest := device.longest()) is not None]
        if self._session.parallel > 1:
            return self._pool.gather(tasks, _shorten(patience, PATIENCE_FACTOR, known, max))
        patience = _shorten(patience, PATIENCE_FACTOR, known, sum)
        turn = _shorten(LONGEST_TURN_RATIO * patience, TURN_FACTOR, known, max)
        return self._pool.gather(tasks, patience, turn=turn)


def _shorten(
    seconds: float,
    factor: float,
    known: Sequence[float],
    combine: Callable[[Sequence[float]], float],
) -> float:
    """Limit a wait to a multiple of the devices' recent reading durations, if any are known."""
    if not known:
        return seconds
    return min(seconds, max(SHORTEST_PATIENCE_SECONDS, factor * combine(known)))


def _sort(
    devices: list[_TimedDevice], outcomes: Mapping[str, Outcome[DeviceRow | bool]]
) -> tuple[list[tuple[object, ...]], list[tuple[str, str]], list[str]]:
    rows: list[tuple[object, ...]] = []
    states: list[tuple[str, str]] = []
    troubles: list[str] = []
    for device in devices:
        outcome = outcomes[device.uuid]
        if isinstance(outcome.value, tuple):
            rows.append((device.uuid, *outcome.value))
        elif outcome.late:
            states.append((device.uuid, "hung"))
        elif isinstance(outcome.error, DeviceError):
            states.append((device.uuid, outcome.error.state))
        elif isinstance(outcome.error, DriverGoneError):
            states.append((device.uuid, "no_driver"))
            troubles.append(f"{device.uuid}: {outcome.error}")
        else:  # a bug in the reader affects only this device
            states.append((device.uuid, "unsupported"))
            troubles.append(f"{device.uuid}: {type(outcome.error).__name__}: {outcome.error}")
    return rows, states, troubles


class _TimedDevice:
    """A device, and the durations of the device's recent readings."""

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
            if (
                duration <= patience
            ):  # longer readings exceed the deadline of every scrape and are not representative
                self._durations.append(duration)

    def longest(self) -> float | None:
        """Return the longest recent reading duration, in seconds; None before the first reading."""
        return max(self._durations) if self._durations else None
