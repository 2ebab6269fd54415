"""Every Xid of every GPU is reported, whatever the driver answers when a GPU is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from tests.support.waiting import wait_until
from trainvitals.sources.accelerators.nvidia import open_nvidia
from trainvitals.sources.accelerators.nvml import Library

WAIT = "nvmlEventSetWait_v2"
LOSS_LAST, LOSS_ALSO_FIRST, LOSS_ALWAYS = range(3)
Listen = Callable[[], list[tuple[int, int]]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """A machine with two GPUs whose fake library is loaded; failures are retried after 0.1 s."""
    monkeypatch.setattr("trainvitals.sources.accelerators.nvidia_events._RETRY_WAIT_MS", 100)
    with FakeMachine(tmp_path, gpus=2) as machine:
        machine.attach()
        yield machine


@pytest.fixture
def listen(machine) -> Iterator[Callable[..., list[tuple[int, int]]]]:
    """A function that starts a watcher and returns the growing list of reported Xids."""
    ended = []

    def start(wrap: Callable[[object], object] = lambda library: library) -> list[tuple[int, int]]:
        session = open_nvidia()
        session._library = Library(wrap(session._library))
        indices = {device.identity[2]: device.identity[1] for device in session.devices}
        found: list[tuple[int, int]] = []

        def report(uuid: str, code: int) -> None:
            found.append((indices[uuid], code))

        watcher = threading.Thread(target=session.watch, args=(report,))
        watcher.start()
        ended.append((session, watcher))
        return found

    yield start
    for session, _ in ended:
        session.stop_watching()
    machine.heal()
    for index in (0, 1):
        machine.deliver_xid(index, 13)  # to end a pending wait
    for _, watcher in ended:
        watcher.join(30)
        assert not watcher.is_alive()


def wait_until_heard(machine: FakeMachine) -> None:
    """Wait until the watcher waits for the errors of both GPUs."""
    wait_until(lambda: machine.calls(WAIT) >= 2)


def is_waited_for(machine: FakeMachine, index: int) -> bool:
    """Return whether a GPU is registered, which is when registration is no longer retried."""
    tried = machine.calls("nvmlDeviceRegisterEvents", index)
    time.sleep(0.5)
    return machine.calls("nvmlDeviceRegisterEvents", index) == tried > 0


@pytest.mark.parametrize("loss_comes", [LOSS_LAST, LOSS_ALSO_FIRST])
def test_an_xid_in_the_instant_of_the_loss_is_reported_once(machine, listen, loss_comes):
    """An Xid that arrives with the loss of its GPU is reported once, even after the loss."""
    machine.scenario.nvidia.loss_comes = loss_comes
    found = listen()
    wait_until_heard(machine)
    machine.gpu(0).device.lost = 1  # does not end a wait; the error does
    machine.deliver_xid(0, 79)
    wait_until(lambda: found)
    time.sleep(0.3)
    assert found == [(0, 79)]


@pytest.mark.parametrize("loss_comes", [LOSS_LAST, LOSS_ALSO_FIRST, LOSS_ALWAYS])
def test_the_loss_of_one_gpu_costs_no_error_of_another(machine, listen, loss_comes):
    """The loss of one GPU does not suppress errors of the other GPU."""
    machine.scenario.nvidia.loss_comes = loss_comes
    found = listen()
    wait_until_heard(machine)
    machine.gpu(0).device.lost = 1
    for code in (31, 43):
        machine.deliver_xid(1, code)
    wait_until(lambda: len(found) == 2)
    assert found == [(1, 31), (1, 43)]
    machine.deliver_xid(1, 94)
    wait_until(lambda: len(found) == 3)
    assert found[2] == (1, 94)


def test_a_gpu_that_returns_is_heard_again(machine, listen):
    """The errors of a restored GPU are reported again."""
    found = listen()
    wait_until_heard(machine)
    machine.deliver_xid(0, 79)
    machine.lose(0)
    wait_until(lambda: found == [(0, 79)])
    wait_until(lambda: not is_waited_for(machine, 0))
    machine.deliver_xid(1, 31)
    wait_until(lambda: len(found) == 2)
    machine.restore(0)
    wait_until(lambda: is_waited_for(machine, 0))
    machine.deliver_xid(0, 94)
    wait_until(lambda: len(found) == 3)
    assert found == [(0, 79), (1, 31), (0, 94)]


def test_errors_during_a_failure_of_the_wait_are_not_lost(machine, listen):
    """Errors that arrive while the wait fails are read before the event set is replaced."""
    found = listen()
    wait_until_heard(machine)
    machine.fail(WAIT, None, 999)
    machine.deliver_xid(0, 48)  # ends the wait, which fails the next time
    machine.reset_calls()
    wait_until(lambda: machine.calls(WAIT))
    machine.deliver_xid(0, 63)
    machine.fail(WAIT, None, 0)
    wait_until(lambda: len(found) == 2)
    assert found == [(0, 48), (0, 63)]


def test_a_registration_that_hangs_keeps_no_other_gpu(machine, listen):
    """A registration that hangs for one GPU does not delay the errors of the other GPU."""
    machine.hang("nvmlDeviceRegisterEvents", device=0)
    found = listen()
    wait_until(lambda: machine.calls(WAIT))
    machine.deliver_xid(1, 31)
    wait_until(lambda: found == [(1, 31)])


class Older:
    """The library of a driver that has only version 1 of the wait function."""

    def __init__(self, library: object) -> None:
        self._library = library

    def __getattr__(self, name: str) -> object:
        if name == WAIT:
            raise AttributeError(f"undefined symbol: {name}")
        return getattr(self._library, name)


def test_a_driver_with_the_first_version_of_the_wait_is_heard(machine, listen):
    """Errors are reported through version 1 of the wait function if version 2 is missing."""
    found = listen(Older)
    wait_until(lambda: machine.calls("nvmlEventSetWait") >= 2)
    machine.deliver_xid(1, 74)
    wait_until(lambda: found == [(1, 74)])
    assert machine.calls(WAIT) == 0


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
def test_a_driver_without_events_is_not_asked_again(machine, listen, function):
    """A driver without event support is queried only once for each GPU."""
    machine.fail(function, None, 3 if function == "nvmlDeviceRegisterEvents" else 13)
    session = open_nvidia()
    session.watch(lambda *_: None)
    assert machine.calls(function) == 2


def test_an_error_of_the_wait_does_not_spin(machine, listen, monkeypatch):
    """A failing wait is retried only after a pause."""
    monkeypatch.setattr("trainvitals.sources.accelerators.nvidia_events._RETRY_WAIT_MS", 5_000)
    machine.fail(WAIT, None, 999)
    listen()
    wait_until_heard(machine)
    time.sleep(0.3)
    assert machine.calls(WAIT) <= 8


class Restless:
    """A library whose wait function returns at once with an unrequested event."""

    def __init__(self, library: object) -> None:
        self._library = library
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def nvmlEventSetWait_v2(self, *arguments: object) -> int:  # noqa: N802 - the driver's name
        """Count the call and return an event of an unknown type."""
        self.calls += 1
        data = arguments[1]._obj
        data.eventType, data.eventData = 0, 79
        return 0


def test_an_event_of_another_kind_is_no_xid_and_does_not_spin(machine, listen, monkeypatch):
    """An event of another type is not reported as an Xid, and causes a pause."""
    monkeypatch.setattr("trainvitals.sources.accelerators.nvidia_events._RETRY_WAIT_MS", 5_000)
    libraries: list[Restless] = []

    def wrap(library: object) -> Restless:
        libraries.append(Restless(library))
        return libraries[0]

    found = listen(wrap)
    wait_until(lambda: libraries[0].calls >= 2)
    time.sleep(0.3)
    assert libraries[0].calls <= 8
    assert found == []
