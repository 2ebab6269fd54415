"""A driver is reopened after any failure, and the number of readers is limited."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.waiting import wait_until
from tests.unit.sources.accelerators import scripted
from tests.unit.sources.accelerators.scripted import (
    ScriptedDevice,
    ScriptedSession,
    fail,
)
from trainvitals.sources.accelerators import driver as driver_module
from trainvitals.sources.accelerators.driver import Driver
from trainvitals.sources.accelerators.reader import Opener
from trainvitals.sources.accelerators.row import DriverGoneError
from trainvitals.sources.accelerators.vendor import Vendor

Start = Callable[..., Driver]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a driver with the named opener; the test's end closes the driver."""
    drivers = []

    def start(opener: str, *, is_installed=lambda: True, is_isolated: bool = False) -> Driver:
        vendor = Vendor("scripted", "gpu", Opener(scripted.__name__, opener), is_installed, ())
        driver = Driver(vendor, is_isolated=is_isolated)
        drivers.append(driver)
        driver.start()
        return driver

    yield start
    for driver in drivers:
        driver.close()


def read(driver: Driver, seconds: float = 5.0) -> list[str]:
    """Read the driver once and return the state of each device."""
    return [reading.state for reading in driver.read(time.monotonic() + seconds)]


def read_until(driver: Driver, wanted: list[str]) -> None:
    """Read the driver until the devices have the wanted states."""
    wait_until(lambda: read(driver) == wanted, describe=lambda: driver.complaint)


@pytest.mark.parametrize("is_isolated", [False, True])
def test_two_devices_are_read(start, is_isolated):
    """Two devices are read by a thread without a child process, or by one isolated process."""
    driver = start("open_two", is_isolated=is_isolated)
    assert read(driver) == ["ok", "ok"]
    assert driver.complaint is None
    assert not driver.is_absent
    assert len(driver.pids) == is_isolated
    assert driver.omitted_processes == 0


@pytest.mark.parametrize("is_isolated", [False, True])
def test_a_driver_that_was_let_go_is_taken_up_by_itself(start, is_isolated):
    """A released driver is read again after the given time, then always in a child process."""
    driver = start("open_two", is_isolated=is_isolated)
    read(driver)
    driver.release(0.6)
    assert driver.pids == ()
    assert read(driver) == ["no_driver", "no_driver"]
    assert driver.complaint == "scripted: released for 1 s by SIGUSR1"
    time.sleep(0.6)
    read_until(driver, ["ok", "ok"])
    assert len(driver.pids) == 1


def test_telling_it_twice_takes_it_up_again(start):
    """A second release reopens the driver; three releases have the effect of one."""
    driver = start("open_two")
    read(driver)
    driver.release()
    driver.release()
    read_until(driver, ["ok", "ok"])
    for _ in range(3):
        driver.release()
    assert read(driver) == ["no_driver", "no_driver"]


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_letting_go_does_not_wait_for_a_reading(start, monkeypatch):
    """`release` returns at once during a reading, and takes effect when the reading ends."""
    reading, freed = threading.Event(), threading.Event()

    def act() -> None:
        reading.set()
        freed.wait(60)

    monkeypatch.setattr(
        scripted, "open_slow", lambda: ScriptedSession(ScriptedDevice(0, act)), raising=False
    )
    driver = start("open_slow")
    reader = threading.Thread(target=read, args=(driver,))
    reader.start()
    assert reading.wait(30)
    begin = time.monotonic()
    driver.release()
    assert time.monotonic() - begin < 0.1
    freed.set()
    reader.join(30)
    assert read(driver) == ["no_driver"]


def test_nothing_is_complained_about_where_there_is_no_driver(start):
    """An absent driver causes no complaint, even if it is released."""
    for opener, is_installed in (("open_two", lambda: False), ("open_absent", lambda: True)):
        driver = start(opener, is_installed=is_installed)
        assert read(driver) == []
        assert driver.is_absent
        driver.release()
        assert read(driver) == []
        assert driver.complaint is None


def test_a_library_that_is_installed_later_is_found(start, monkeypatch):
    """A missing library is searched for again only after the retry interval."""
    looks = []
    driver = start("open_two", is_installed=lambda: looks.append(1) or len(looks) > 2)
    for _ in range(5):
        assert read(driver) == []
    assert len(looks) == 1
    monkeypatch.setattr(driver_module, "_RETRY_ABSENT_SECONDS", 0.1)
    driver._retry_at = 0.0
    assert read(driver) == []
    assert len(looks) == 2
    time.sleep(0.1)
    read_until(driver, ["ok", "ok"])


@pytest.mark.parametrize("is_isolated", [False, True])
def test_a_driver_that_refuses_is_asked_again_after_seconds(start, monkeypatch, is_isolated):
    """A driver that refuses to open is reported with its message, and not reopened each scrape."""
    starts = []
    begin = Driver._start_reader
    monkeypatch.setattr(Driver, "_start_reader", lambda self: starts.append(1) or begin(self))
    driver = start("open_gone", is_isolated=is_isolated)
    for _ in range(5):
        assert read(driver) == []
        assert driver.complaint == "scripted: refused by the script"
    assert len(starts) <= 2


def test_a_thread_that_hangs_in_opening_is_replaced_by_a_process(start, monkeypatch):
    """A reader thread that hangs while it opens the driver is replaced by a process.

    The timeout of one minute is shortened for the test.
    """
    monkeypatch.setattr(driver_module, "_OPENING_SECONDS", 0.1)
    monkeypatch.setattr(driver_module, "_HANGS_SECONDS", 0.3)
    driver = start("open_two_unless_on_a_thread")
    assert read(driver, 0.5) == []
    assert driver.complaint == "opening the scripted driver takes long"
    monkeypatch.setattr(driver_module, "_RETRY_SECONDS", 0.1)
    read_until(driver, ["ok", "ok"])
    assert len(driver.pids) == 1


def test_a_process_that_does_not_answer_is_replaced(start, monkeypatch):
    """A reader process that does not answer is replaced after the timeout, shortened here."""
    monkeypatch.setattr(driver_module, "_RETRY_SECONDS", 0.1)
    driver = start("open_two", is_isolated=True)
    assert read(driver) == ["ok", "ok"]
    (pid,) = driver.pids
    os.kill(pid, 19)
    assert read(driver, 0.5) == ["hung", "hung"]
    assert driver.complaint == "the scripted driver reader does not answer"
    assert driver.pids == (pid,)
    monkeypatch.setattr(driver_module, "_HANGS_SECONDS", 0.5)
    time.sleep(0.5)
    read_until(driver, ["ok", "ok"])
    assert driver.pids != (pid,)


def test_a_driver_that_goes_is_taken_up_by_a_process_at_once(start, monkeypatch):
    """If the driver is unloaded during a scrape, a new process reads it in the same scrape."""
    is_gone = threading.Event()

    def act() -> bool:
        if is_gone.is_set():
            raise DriverGoneError("unloaded")
        return True

    session = ScriptedSession(ScriptedDevice(0, act), ScriptedDevice(1), count=act)
    monkeypatch.setattr(scripted, "open_two", lambda: session)
    driver = start("open_two")
    assert read(driver) == ["ok", "ok"]
    monkeypatch.setattr(driver_module, "_SHORT_WAIT_SECONDS", 5.0)
    is_gone.set()
    assert read(driver) == ["ok", "ok"]
    assert len(driver.pids) == 1
    assert driver.complaint is None
    assert [xid.xid for each in driver.read(time.monotonic() + 5) for xid in each.xids] == [31]


def test_without_descriptors_no_reader_is_started_and_later_one_is(start):
    """A lack of file descriptors is reported as a complaint, and the reader starts once it ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        driver = start("open_two", is_isolated=True)
        assert read(driver) == []
        complaint = driver.complaint
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert complaint == "cannot start the scripted driver reader: Too many open files"
    driver._retry_at = 0.0
    read_until(driver, ["ok", "ok"])
    assert driver.complaint is None


def test_a_bug_with_one_device_is_complained_about(start, monkeypatch):
    """An exception from one device is reported with its UUID, and the other device is read."""
    devices = ScriptedDevice(0, fail(KeyError("x"))), ScriptedDevice(1)
    monkeypatch.setattr(scripted, "open_two", lambda: ScriptedSession(*devices))
    driver = start("open_two")
    assert read(driver) == ["unsupported", "ok"]
    assert driver.complaint == "uuid-0: KeyError: 'x'"


def test_a_closed_driver_starts_nothing_any_more(start):
    """A closed driver starts no reader process, even if it is read again."""
    driver = start("open_two", is_isolated=True)
    assert read(driver) == ["ok", "ok"]
    driver.close()
    assert driver.pids == ()
    read(driver)
    assert driver.pids == ()
