"""Every Xid of every GPU is reported, however the driver tells of a loss beside it."""

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
    """Two GPUs of which this process has just loaded the library; failures are soon tried again."""
    monkeypatch.setattr("trainvitals.sources.accelerators.nvidia_events._RETRY_WAIT_MS", 100)
    with FakeMachine(tmp_path, gpus=2) as machine:
        machine.attach()
        yield machine


@pytest.fixture
def listen(machine) -> Iterator[Callable[..., list[tuple[int, int]]]]:
    """Start to listen; give the list of index and code of what is reported from then on."""
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
        machine.deliver_xid(index, 13)  # so that no wait lasts longer
    for _, watcher in ended:
        watcher.join(30)
        assert not watcher.is_alive()


def wait_until_heard(machine: FakeMachine) -> None:
    """Wait until the errors of both GPUs are waited for."""
    wait_until(lambda: machine.calls(WAIT) >= 2)


def is_waited_for(machine: FakeMachine, index: int) -> bool:
    """Return whether a GPU could be registered: it is tried again and again until then."""
    tried = machine.calls("nvmlDeviceRegisterEvents", index)
    time.sleep(0.5)
    return machine.calls("nvmlDeviceRegisterEvents", index) == tried > 0


@pytest.mark.parametrize("loss_comes", [LOSS_LAST, LOSS_ALSO_FIRST])
def test_an_xid_in_the_instant_of_the_loss_is_reported_once(machine, listen, loss_comes):
    """The driver may name the loss first: what is in the set is read past it."""
    machine.scenario.nvidia.loss_comes = loss_comes
    found = listen()
    wait_until_heard(machine)
    machine.gpu(0).device.lost = 1  # waits are not woken by it, but by the error
    machine.deliver_xid(0, 79)
    wait_until(lambda: found)
    time.sleep(0.3)
    assert found == [(0, 79)]


@pytest.mark.parametrize("loss_comes", [LOSS_LAST, LOSS_ALSO_FIRST, LOSS_ALWAYS])
def test_the_loss_of_one_gpu_costs_no_error_of_another(machine, listen, loss_comes):
    """Not even in the same instant, from a driver that says nothing but the loss any more."""
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
    """After errors of its own and of the other meanwhile."""
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
    """They stay in the set, which is read before another takes its place."""
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
    """Each GPU is registered by itself."""
    machine.hang("nvmlDeviceRegisterEvents", device=0)
    found = listen()
    wait_until(lambda: machine.calls(WAIT))
    machine.deliver_xid(1, 31)
    wait_until(lambda: found == [(1, 31)])


class Older:
    """The library of a driver that has only the first version of the wait."""

    def __init__(self, library: object) -> None:
        self._library = library

    def __getattr__(self, name: str) -> object:
        if name == WAIT:
            raise AttributeError(f"undefined symbol: {name}")
        return getattr(self._library, name)


def test_a_driver_with_the_first_version_of_the_wait_is_heard(machine, listen):
    """Its events are shorter."""
    found = listen(Older)
    wait_until(lambda: machine.calls("nvmlEventSetWait") >= 2)
    machine.deliver_xid(1, 74)
    wait_until(lambda: found == [(1, 74)])
    assert machine.calls(WAIT) == 0


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
def test_a_driver_without_events_is_not_asked_again(machine, listen, function):
    """Neither one that lacks them nor one that says that no GPU has them."""
    machine.fail(function, None, 3 if function == "nvmlDeviceRegisterEvents" else 13)
    session = open_nvidia()
    session.watch(lambda *_: None)
    assert machine.calls(function) == 2


def test_an_error_of_the_wait_does_not_spin(machine, listen, monkeypatch):
    """It is tried again after a while, whether it fails or tells what nobody asked for."""
    monkeypatch.setattr("trainvitals.sources.accelerators.nvidia_events._RETRY_WAIT_MS", 5_000)
    machine.fail(WAIT, None, 999)
    listen()
    wait_until_heard(machine)
    time.sleep(0.3)
    assert machine.calls(WAIT) <= 8


class Restless:
    """A library whose wait returns at once with an event that nobody asked for."""

    def __init__(self, library: object) -> None:
        self._library = library
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def nvmlEventSetWait_v2(self, *arguments: object) -> int:  # noqa: N802 - the driver's name
        """Count the call and return."""
        self.calls += 1
        data = arguments[1]._obj
        data.eventType, data.eventData = 0, 79
        return 0


def test_an_event_of_another_kind_is_no_xid_and_does_not_spin(machine, listen, monkeypatch):
    """Its number means something else."""
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
