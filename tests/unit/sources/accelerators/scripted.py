"""Scripted drivers for readers in threads and processes, each with a function to open it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from trainvitals.sources.accelerators.row import (
    EMPTY_ROW,
    ROW_FIELDS,
    SLOT,
    DeviceError,
    DeviceRow,
    DriverAbsentError,
    DriverGoneError,
    IdentityFields,
)


class ScriptedDevice:
    """A device whose reading is determined by a function.

    Args:
        index: The index of the device; its UUID is `uuid-INDEX`.
        act: The function that each reading calls; its exception is raised by the reading.
    """

    def __init__(self, index: int, act: Callable[[], None] = lambda: None) -> None:
        self.identity: IdentityFields = ("gpu", index, f"uuid-{index}", "M", "B", "1.0", None)
        self._act = act

    def read(self, since: int | None) -> DeviceRow:
        """Return a power draw of 100 W, and a tenth of a second of busy time."""
        self._act()
        row = list(EMPTY_ROW)
        row[SLOT["power_watts"]] = 100.0
        return row, ((since or 0) + 1, 0.1, 0.0), []


class ScriptedSession:
    """A session of a driver with these devices.

    Attributes:
        is_closed: Whether the session was closed.
    """

    parallel = 64
    troubles: tuple[str, ...] = ()

    def __init__(
        self,
        *devices: ScriptedDevice,
        count: Callable[[], bool] = lambda: True,
        watch: Callable[[Callable[[str, int], None]], None] = lambda _: None,
    ) -> None:
        self.devices = devices
        self.unreadable: list[tuple[IdentityFields, str]] = []
        self.is_closed = False
        self._count = count
        self._watch = watch

    def is_current(self) -> bool:
        """Return the result of the test's function."""
        return self._count()

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Call the test's function."""
        self._watch(report)

    def stop_watching(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Record that the session was closed."""
        self.is_closed = True


def fail(error: Exception) -> Callable[[], None]:
    """Return a function that raises the error."""

    def act() -> None:
        raise error

    return act


def open_two() -> ScriptedSession:
    """Return a session of two healthy devices, of which the second reports Xid 31 at once."""
    devices = ScriptedDevice(0), ScriptedDevice(1)
    return ScriptedSession(*devices, watch=lambda report: report("uuid-1", 31))


def open_two_unless_on_a_thread() -> ScriptedSession:
    """Return a session of two devices, or hang if called in a thread."""
    if threading.current_thread() is not threading.main_thread():
        time.sleep(20)
    return open_two()


def open_absent() -> ScriptedSession:
    """Raise the error of an absent driver."""
    raise DriverAbsentError("no driver in the script")


def open_gone() -> ScriptedSession:
    """Raise the error of a driver that is gone."""
    raise DriverGoneError("refused by the script")


def open_wrongly() -> ScriptedSession:
    """Raise an error that a driver must not raise when it is opened."""
    raise DeviceError("lost")


def open_and_die() -> ScriptedSession:
    """End the process, like a crashing library; must not be called in a thread."""
    os._exit(1)


def open_and_go() -> ScriptedSession:
    """Return a session whose driver is gone when its device is read."""
    return ScriptedSession(ScriptedDevice(0, fail(DriverGoneError("gone by the script"))))


def open_and_die_when_read() -> ScriptedSession:
    """Return a session that ends the process when its device is read; not for threads."""
    return ScriptedSession(ScriptedDevice(0, lambda: os._exit(1)))


def open_never() -> ScriptedSession:
    """Hang for longer than any test."""
    time.sleep(20)
    return ScriptedSession()


def give(row: Sequence[object]) -> dict[str, object]:
    """Return the known scalar values of a row by name."""
    pairs = zip(ROW_FIELDS, row, strict=True)
    return {
        name: value for name, value in pairs if value is not None and not isinstance(value, tuple)
    }
