"""Drivers that do what their openers' names say, for readers in threads and in processes."""

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
    """A device that reads as it is told.

    Args:
        index: Its index; its UUID is `uuid-INDEX`.
        act: Called in each reading; what it raises is the reading's error.
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
    """A driver with these devices.

    Attributes:
        is_closed: Whether it was closed.
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
        """Return what the script has."""
        return self._count()

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Do what the script says."""
        self._watch(report)

    def stop_watching(self) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """Take note of it."""
        self.is_closed = True


def fail(error: Exception) -> Callable[[], None]:
    """Return an act that raises."""

    def act() -> None:
        raise error

    return act


def open_two() -> ScriptedSession:
    """Two devices that are well; the second reports error 31 at once."""
    devices = ScriptedDevice(0), ScriptedDevice(1)
    return ScriptedSession(*devices, watch=lambda report: report("uuid-1", 31))


def open_two_unless_on_a_thread() -> ScriptedSession:
    """Two devices for a process; a thread hangs."""
    if threading.current_thread() is not threading.main_thread():
        time.sleep(20)
    return open_two()


def open_absent() -> ScriptedSession:
    """There is no driver."""
    raise DriverAbsentError("no driver in the script")


def open_gone() -> ScriptedSession:
    """The driver refuses."""
    raise DriverGoneError("refused by the script")


def open_wrongly() -> ScriptedSession:
    """Opening fails by a bug."""
    raise DeviceError("lost")


def open_and_die() -> ScriptedSession:
    """The library takes its process down; never to be run on a thread."""
    os._exit(1)


def open_and_go() -> ScriptedSession:
    """The driver goes when the device is read."""
    return ScriptedSession(ScriptedDevice(0, fail(DriverGoneError("gone by the script"))))


def open_and_die_when_read() -> ScriptedSession:
    """The library takes its process down when the device is read; never on a thread."""
    return ScriptedSession(ScriptedDevice(0, lambda: os._exit(1)))


def open_never() -> ScriptedSession:
    """Opening hangs for longer than any test."""
    time.sleep(20)
    return ScriptedSession()


def give(row: Sequence[object]) -> dict[str, object]:
    """Return what a row reports, by name."""
    pairs = zip(ROW_FIELDS, row, strict=True)
    return {
        name: value for name, value in pairs if value is not None and not isinstance(value, tuple)
    }
