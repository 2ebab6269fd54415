"""The share of a GPU that each process uses is read from the driver's samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from trainvitals.sources.accelerators.nvidia import open_nvidia

USAGE = "nvmlDeviceGetProcessUtilization"
MIB = 1 << 20
NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 3, 4, 999


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeMachine]:
    """A machine with a GPU that two processes hold, and whose fake library is loaded."""
    with FakeMachine(tmp_path, gpus=1) as machine:
        machine.attach()
        machine.processes(0, [(7, 9 * MIB), (8, MIB)])
        yield machine


def use(machine: FakeMachine, *percents: int) -> None:
    """Set the share of the GPU that each process uses, in percent."""
    (device,) = machine.scenario.nvidia.devices[:1]
    for process, percent in zip(device.processes, percents, strict=False):
        process.sm_percent = percent


def read(session) -> list[tuple[int, float | None]]:
    """Return the PID and share of each process."""
    _, _, holders = session.devices[0].read(None)
    return [(pid, share) for pid, _, share in holders]


def test_each_process_has_its_share(machine):
    """Each process has its share, which is 0 for a process that ran nothing."""
    use(machine, 60, 0)
    assert read(open_nvidia()) == [(7, 0.6), (8, 0.0)]


def test_a_share_above_the_whole_is_not_known(machine):
    """A share above 100 % is an error of the driver and counts as unknown."""
    use(machine, 101, 30)
    assert read(open_nvidia()) == [(7, None), (8, 0.3)]


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_a_card_without_it_has_no_share_and_is_not_asked_again(machine, code):
    """The shares are unknown and not queried again if the driver does not support or permit it."""
    machine.fail(USAGE, None, code)
    session = open_nvidia()
    for _ in range(3):
        assert read(session) == [(7, None), (8, None)]
    assert machine.calls(USAGE) == 1


def test_a_failure_for_a_moment_is_one_for_a_moment(machine):
    """After a temporary error, the shares are queried again at the next reading."""
    machine.fail(USAGE, None, UNKNOWN)
    session = open_nvidia()
    assert read(session) == [(7, None), (8, None)]
    machine.heal()
    assert read(session) == [(7, 0.0), (8, 0.0)]


def test_a_card_that_nobody_holds_is_not_asked(machine):
    """The shares are not queried for a GPU without processes, to save a call."""
    machine.processes(0, [])
    assert read(open_nvidia()) == []
    assert machine.calls(USAGE) == 0


def test_more_processes_than_there_was_room_for_are_read_at_once(machine):
    """The share buffer grows within one reading if it is too small."""
    session = open_nvidia()
    read(session)
    session.devices[0]._usage._buffer._make_room(1)
    use(machine, 10, 20)
    assert read(session) == [(7, 0.1), (8, 0.2)]
