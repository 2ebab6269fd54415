"""All devices of a driver are read in parallel, and a failing device does not affect the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_until
from tests.unit.sources.accelerators.scripted import ScriptedDevice, ScriptedSession, fail
from trainvitals.sources.accelerators.device_pool import DevicePool
from trainvitals.sources.accelerators.row import DeviceError, DriverGoneError


@pytest.fixture
def freed() -> Iterator[threading.Event]:
    """An event that releases the hanging calls, at the latest at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def read(rounds: DevicePool, patience: float = 60.0) -> tuple[list[str], dict[str, str], float]:
    """Return the UUIDs of the devices read, the other devices' states, and the duration."""
    begin = time.monotonic()
    rows, states, _, _ = rounds.read(patience, {})
    return [row[0] for row in rows], dict(states), time.monotonic() - begin


def test_every_device_is_read_from_where_it_was_left():
    """Each device receives the timestamp of its newest sample, or None for its first reading."""
    rounds = DevicePool(ScriptedSession(ScriptedDevice(0), ScriptedDevice(1)))
    rows, states, is_current, troubles = rounds.read(5.0, {"uuid-1": 41})
    assert [(uuid, busy) for uuid, _, busy, _ in rows] == [
        ("uuid-0", (1, 0.1, 0.0)),
        ("uuid-1", (42, 0.1, 0.0)),
    ]
    assert (states, is_current, troubles) == ([], True, [])
    rounds.close()


def test_a_driver_without_devices_is_read_too():
    """The reading of a driver without devices is empty and current."""
    assert DevicePool(ScriptedSession()).read(1.0, {}) == ([], [], True, [])


def test_a_device_that_says_its_state_costs_only_itself():
    """A device that reports itself lost is listed as lost, and the other device is read."""
    devices = ScriptedDevice(0, fail(DeviceError("lost"))), ScriptedDevice(1)
    assert read(DevicePool(ScriptedSession(*devices)))[:2] == (["uuid-1"], {"uuid-0": "lost"})


def test_a_bug_with_one_device_costs_only_that_device():
    """An unexpected exception is reported with the device's UUID, and the other device is read."""
    devices = ScriptedDevice(0, fail(ValueError("bad number"))), ScriptedDevice(1)
    rows, states, _, troubles = DevicePool(ScriptedSession(*devices)).read(5.0, {})
    assert [row[0] for row in rows] == ["uuid-1"]
    assert states == [("uuid-0", "unsupported")]
    assert troubles == ["uuid-0: ValueError: bad number"]


GONE = DriverGoneError("unloaded")


@pytest.mark.parametrize(
    ("devices", "count"),
    [
        ([fail(GONE), fail(GONE)], lambda: True),
        ([fail(GONE), fail(DeviceError("lost"))], lambda: True),
        ([lambda: None, lambda: None], fail(GONE)),
        ([fail(GONE), lambda: None], fail(GONE)),
    ],
)
def test_a_driver_that_is_gone_ends_the_round(devices, count):
    """The reading fails if no device can be read, or if the devices cannot be counted."""
    session = ScriptedSession(*(ScriptedDevice(n, act) for n, act in enumerate(devices)))
    session._count = count
    with pytest.raises(DriverGoneError, match="unloaded"):
        DevicePool(session).read(5.0, {})


def test_a_driver_that_goes_in_the_middle_of_a_round_ends_it():
    """The reading fails if the driver goes away after one device was read successfully."""
    counts = iter([lambda: True, fail(GONE)])
    devices = ScriptedDevice(0, fail(GONE)), ScriptedDevice(1)
    session = ScriptedSession(*devices, count=lambda: next(counts)() or True)
    with pytest.raises(DriverGoneError, match="unloaded"):
        DevicePool(session).read(5.0, {})


def test_one_device_that_says_that_the_driver_is_gone_costs_only_itself():
    """A device that reports a missing driver is skipped if the driver still counts its devices."""
    devices = ScriptedDevice(0, fail(GONE)), ScriptedDevice(1)
    rows, states, is_current, troubles = DevicePool(ScriptedSession(*devices)).read(5.0, {})
    assert [row[0] for row in rows] == ["uuid-1"]
    assert (states, is_current) == ([("uuid-0", "no_driver")], True)
    assert troubles == ["uuid-0: unloaded"]


def test_a_bug_with_the_count_costs_no_device():
    """If counting the devices raises an exception, the driver counts as current."""
    session = ScriptedSession(ScriptedDevice(0), count=fail(ValueError("no number")))
    rows, states, is_current, troubles = DevicePool(session).read(5.0, {})
    assert ([row[0] for row in rows], states, is_current) == (["uuid-0"], [], True)
    assert troubles == ["ValueError: no number"]


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_a_device_that_hangs_costs_a_quarter_second_once_and_then_nothing(freed):
    """A hung device delays one reading by about 0.25 s and is not read again until it responds."""
    calls = []
    hangs = threading.Event()

    def act() -> None:
        calls.append(1)
        if hangs.is_set():
            freed.wait()

    rounds = DevicePool(ScriptedSession(ScriptedDevice(0), ScriptedDevice(1, act)))
    assert read(rounds)[0] == ["uuid-0", "uuid-1"]
    hangs.set()
    found, states, seconds = read(rounds)
    assert (found, states) == (["uuid-0"], {"uuid-1": "hung"})
    assert 0.2 < seconds < 20
    for _ in range(3):
        found, states, seconds = read(rounds)
        assert (found, states) == (["uuid-0"], {"uuid-1": "hung"})
        assert seconds < 20
    assert len(calls) == 2
    hangs.clear()
    freed.set()
    wait_until(lambda: read(rounds)[0] == ["uuid-0", "uuid-1"])


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_how_long_it_hung_does_not_make_the_next_hang_longer(freed):
    """A reading that outlasts the deadline does not lengthen the wait for later readings."""
    hung = [False, True, False, True]
    waits = iter([0.0, 0.6, 0.0, 20.0])

    def act() -> None:
        freed.wait(next(waits))

    rounds = DevicePool(ScriptedSession(ScriptedDevice(0), ScriptedDevice(1, act)))
    for number, is_hung in enumerate(hung):
        _, states, seconds = read(rounds, patience=0.5)
        assert (states == {"uuid-1": "hung"}) == is_hung, number
        assert seconds < 0.45
        time.sleep(0.4 if is_hung else 0)


def test_a_device_that_became_slow_is_waited_for(freed):
    """A device that became slow counts as hung once; later readings wait for it."""
    acts = iter([lambda: None, freed.wait, lambda: time.sleep(0.6)])
    rounds = DevicePool(ScriptedSession(ScriptedDevice(0, lambda: next(acts)() and None)))
    assert read(rounds)[1] == {}
    assert read(rounds)[1] == {"uuid-0": "hung"}
    freed.set()
    wait_until(lambda: not rounds._pool.is_running("uuid-0"))
    assert read(rounds)[1] == {}


def test_a_count_that_hangs_costs_no_device(freed):
    """If the call that counts the devices hangs, the driver counts as current."""
    rounds = DevicePool(ScriptedSession(ScriptedDevice(0), count=lambda: freed.wait() or True))
    rows, _, is_current, troubles = rounds.read(0.3, {})
    assert len(rows) == 1
    assert is_current
    assert troubles == ["the driver call that counts the devices hangs"]


def test_a_driver_that_shows_other_devices_is_not_current():
    """A driver that lists other devices than at its opening is not current."""
    assert (
        DevicePool(ScriptedSession(ScriptedDevice(0), count=lambda: False)).read(1.0, {})[2]
        is False
    )
