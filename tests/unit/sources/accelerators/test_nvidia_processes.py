"""The processes of a GPU are read with the newest version of the call that the driver has."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from trainvitals.sources.accelerators.nvidia import open_nvidia
from trainvitals.sources.accelerators.nvidia_processes import ProcessList
from trainvitals.sources.accelerators.nvml import Library

MIB = 1 << 20
LIST = "nvmlDeviceGetComputeRunningProcesses"
VERSIONS = (f"{LIST}_v3", f"{LIST}_v2", LIST)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeMachine]:
    """A machine with a GPU whose fake library is loaded into the test process."""
    with FakeMachine(tmp_path, gpus=1) as machine:
        machine.attach()
        yield machine


class Without:
    """The library of a driver in which some functions do not exist.

    Args:
        library: The complete library.
        names: The names of the missing functions.
    """

    def __init__(self, library: object, *names: str) -> None:
        self._library = library
        self._names = names

    def __getattr__(self, name: str) -> object:
        if name in self._names:
            raise AttributeError(f"undefined symbol: {name}")
        return getattr(self._library, name)


def open_list(*missing: str) -> ProcessList:
    """Return the process list of the GPU for a driver without the given functions."""
    session = open_nvidia()
    return ProcessList(Library(Without(session._library, *missing)), session.devices[0].handle)


@pytest.mark.parametrize("absent", [0, 1, 2])
@pytest.mark.parametrize("is_listed", [False, True], ids=["missing", "function not found"])
def test_the_newest_version_that_is_there_is_read(machine, absent, is_listed):
    """The newest supported version is used, whether a newer one is missing or refused."""
    expected = [(pid, pid * MIB) for pid in (9, 7, 4)]
    machine.processes(0, [*expected[::-1]])
    processes = open_list(*(() if is_listed else VERSIONS[:absent]))
    if is_listed:
        for name in VERSIONS[:absent]:
            machine.fail(name, 0, 13)
    for _ in range(2):
        assert processes.read() == (3, expected)
    assert machine.calls(VERSIONS[absent], 0) == 2
    assert sum(machine.calls(name, 0) for name in VERSIONS[:absent]) == is_listed * absent


def test_a_driver_without_any_version_has_no_list(machine):
    """The process list is None, without an error, if the driver has no version of the call."""
    assert open_list(*VERSIONS).read() is None


def test_a_device_of_an_older_driver_is_read_whole(machine):
    """Missing newer functions do not change which values a device reports."""
    machine.processes(0, [(12, 3 * MIB)])
    session = open_nvidia()
    device = session.devices[0]
    whole, _, holders = device.read(None)
    older = Without(
        session._library, VERSIONS[0], "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetFanSpeed"
    )
    device._library = Library(older)
    device._bound_until = 0.0  # five minutes later
    row, _, same = device.read(None)
    assert same == holders == [(12, 3 * MIB, 0.0)]
    assert [value is None for value in row] == [value is None for value in whole]


@pytest.mark.parametrize("entry_bytes", [0, 32])
@pytest.mark.parametrize("count", [0, 1, 2, 31, 32])
def test_the_size_of_an_entry_is_found(machine, entry_bytes, count):
    """The size of the list entries is detected, since some drivers of release 535 differ."""
    machine.scenario.nvidia.process_entry_bytes = entry_bytes
    expected = [(pid, pid * MIB) for pid in range(count, 0, -1)]
    machine.processes(0, expected)
    assert open_list().read() == (count, expected)


class Answer:
    """A library whose process lists the test defines.

    Args:
        data: The bytes that are written into the buffer.
        counts: The number of processes that each call returns.
        codes: The return code of each call.
    """

    def __init__(self, data: bytes, counts: list[int], codes: list[int]) -> None:
        self._data, self._counts, self._codes = data, counts, codes
        self.rooms: list[int] = []

    def __getattr__(self, name: str) -> object:
        return self._list

    def _list(self, _: object, count: object, buffer: ctypes.Array[ctypes.c_char]) -> int:
        self.rooms.append(count._obj.value)
        room = len(buffer)
        ctypes.memmove(buffer, self._data[:room], min(room, len(self._data)))
        count._obj.value = self._counts.pop(0)
        return self._codes.pop(0)


def entry(pid: int, used: int) -> bytes:
    """Return a list entry of 24 bytes."""
    return pid.to_bytes(8, "little") + used.to_bytes(8, "little") + b"\xff" * 8


def test_room_that_the_driver_clears_is_no_entry():
    """Unused parts of the buffer that the driver fills with zeros are not processes."""
    cleared = entry(5, 6 * MIB) + entry(4, MIB) + bytes(24 * 62)
    library = Answer(cleared, [2], [0])
    assert ProcessList(Library(library), ctypes.c_void_p(1)).read() == (
        2,
        [(5, 6 * MIB), (4, MIB)],
    )


def test_memory_that_is_not_known_is_none():
    """A process with unknown memory use is counted, and its memory is None."""
    library = Answer(entry(5, 2**64 - 1), [1], [0])
    assert ProcessList(Library(library), ctypes.c_void_p(1)).read() == (1, [(5, None)])


def test_no_count_of_the_driver_costs_more_than_the_list():
    """An absurd count neither reads past the buffer nor grows it beyond 4096 entries."""
    library = Answer(entry(5, MIB) * 64, [2**32 - 1], [0])
    count, _ = ProcessList(Library(library), ctypes.c_void_p(1)).read()
    assert count == 64
    library = Answer(b"", [2**32 - 1] * 2, [7, 7])
    assert ProcessList(Library(library), ctypes.c_void_p(1)).read() is None
    assert library.rooms == [64, 4096]
