"""Devices that are held but not used count as idle, and the activity of their processes is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainvitals.sources.accelerators.idleness import IdleWatch, Limits
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Idleness,
    Measurements,
    ProcessMemory,
)
from trainvitals.sources.files import Roots

LIMITS = Limits(utilization_percent=1.0, seconds=60.0, memory_ratio=0.1)
GIB = 1 << 30


class Watched:
    """An `IdleWatch` with a clock that the test controls.

    Attributes:
        asked: The devices that the judge function received.
        limits_read: The number of times the limits were read.
    """

    def __init__(self, procfs: Path) -> None:
        self.time = 1000.0
        self.asked = []
        self.limits_read = 0
        self.watch = IdleWatch(
            self._judge, self._read_limits, roots=Roots(procfs=procfs), clock=lambda: self.time
        )

    def _judge(self, device) -> Idleness:
        self.asked.append(device)
        return Idleness("sleeps", "it sleeps", 7)

    def _read_limits(self) -> Limits:
        self.limits_read += 1
        return LIMITS

    def look(self, *devices: AcceleratorReading, after: float = 0.0) -> list[bool]:
        """Return which of the devices are idle."""
        self.time += after
        found = self.watch.judge(AcceleratorsReading(devices), None)
        return [each.idle is not None for each in found.devices]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """An `IdleWatch` on an empty `/proc`."""
    return Watched(tmp_path)


def gpu(index: int = 0, *pids: int, share: float | None = 0.0, **measured) -> AcceleratorReading:
    """Return the reading of a GPU with 80 GiB of memory."""
    identity = Identity("gpu", index, f"G{index}", "H100", f"0:{index}b", "570")
    measured = {"memory_used_bytes": GIB, "memory_total_bytes": 80 * GIB, **measured}
    processes = tuple(ProcessMemory(pid, GIB) for pid in pids)
    return AcceleratorReading(
        identity, "ok", 1.0, Measurements(utilization_ratio=share, **measured), processes
    )


def test_a_held_device_is_idle_after_a_minute(watched):
    """A held device is idle after a minute without use, and no longer when it is used."""
    assert watched.look(gpu(0, 7)) == [False]
    assert watched.look(gpu(0, 7), after=59.0) == [False]
    assert watched.look(gpu(0, 7), after=1.0) == [True]
    assert watched.look(gpu(0, 7, share=0.5), after=15.0) == [False]
    assert watched.look(gpu(0, 7), after=15.0) == [False]
    assert watched.look(gpu(0, 7), after=60.0) == [True]


def test_work_between_two_looks_counts(watched):
    """Work between two readings counts, even if the utilization gauge is zero at both."""
    watched.look(gpu(0, 7, busy_seconds_total=5.0))
    assert watched.look(gpu(0, 7, busy_seconds_total=5.1), after=61.0) == [True]
    assert watched.look(gpu(0, 7, busy_seconds_total=9.0), after=60.0) == [False]


def test_a_look_a_moment_later_does_not_begin_anew(watched):
    """A second reading within a second does not restart the idle time."""
    watched.look(gpu(0, 7, busy_seconds_total=5.0))
    watched.look(gpu(0, 7, busy_seconds_total=5.005), after=0.2)
    assert watched.look(gpu(0, 7, busy_seconds_total=5.01), after=60.0) == [True]


def test_a_device_whose_use_is_not_known_is_not_idle(watched):
    """A device with unknown utilization, as in MIG mode, is not idle."""
    watched.look(gpu(0, 7, share=None))
    assert watched.look(gpu(0, 7, share=None), after=99.0) == [False]


def test_a_device_that_nobody_holds_is_not_judged(watched):
    """A device without processes is assessed only if much memory is in use, and never if lost."""
    lost = replace(gpu(2, 7), state="lost", measurements=None)
    full = gpu(1, memory_used_bytes=40 * GIB)
    watched.look(gpu(0), full, lost)
    assert watched.look(gpu(0), full, lost, after=60.0) == [False, True, False]


def test_a_machine_without_held_devices_costs_nothing(watched):
    """The limits are not read as long as no device is held."""
    empty = gpu(0, memory_used_bytes=0)
    watched.look(empty)
    assert watched.limits_read == 0


def test_the_judge_knows_the_busy_devices(watched):
    """The judge function receives the busy devices by the PIDs of their processes."""
    devices = gpu(0, 7), gpu(1, 8, share=0.9)
    watched.look(*devices)
    watched.look(*devices, after=60.0)
    (asked,) = watched.asked
    assert asked.reading.identity.index == 0
    assert list(asked.surroundings) == [7]
    assert {pid: each.identity.index for pid, each in asked.busy.items()} == {8: 1}


def test_at_most_32_processes_are_looked_at(watched):
    """The activity of at most 32 processes is read, beginning with one process of each device.

    A device none of whose processes was read is not assessed.
    """
    devices = [gpu(at, *range(100 * at, 100 * at + 8)) for at in range(1, 7)]
    watched.look(*devices)
    assert watched.look(*devices, after=60.0) == [True] * 6
    seen = watched.asked[-1].surroundings
    assert len(seen) == 32
    assert {100, 200, 300, 400, 500, 600} <= set(seen)
    many = [gpu(at, at) for at in range(1, 41)]
    watched.look(*many, after=15.0)
    assert sum(watched.look(*many, after=60.0)) == 32
