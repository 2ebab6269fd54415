"""Tests for the source that reads the boot time and the clock."""

from __future__ import annotations

import time

import psutil
import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel import (
    ClockState,
    KernelReading,
    KernelSource,
    clock_state,
    load_adjtimex,
)


def test_the_fake_machine_booted_when_its_stat_says(roots: Roots):
    """The boot time is `btime` from `/proc/stat`, and the time is that of the clock."""
    source = KernelSource(
        roots=roots,
        clock=lambda: 1_700_086_400.5,
        adjtimex=lambda: ClockState(offset_seconds=0.002, synchronized=True),
    )
    assert source.read() == KernelReading(
        1_700_000_000, 1_700_086_400.5, ClockState(offset_seconds=0.002, synchronized=True)
    )


def test_the_boot_time_follows_a_stepped_clock(roots: Roots):
    """If the clock is set, the kernel changes `btime`, and the boot time follows."""
    now = 1_700_000_100.0
    source = KernelSource(roots=roots, clock=lambda: now, uptime=lambda: 100.0)
    assert source.read().boot_time_seconds == 1_700_000_000
    path = roots.procfs / "stat"
    path.write_text(path.read_text().replace("btime 1700000000", "btime 1700003600"))
    now += 3600
    assert source.read().boot_time_seconds == 1_700_003_600


def test_a_clock_that_may_not_be_asked_is_unknown(roots: Roots):
    """If `adjtimex` returns nothing, only the clock state is unknown."""
    reading = KernelSource(roots=roots, adjtimex=lambda: None).read()
    assert reading.clock is None
    assert reading.boot_time_seconds == 1_700_000_000


@pytest.mark.parametrize(
    ("state", "offset", "status", "expected"),
    [
        (0, 1_500, 0x0001, ClockState(0.0015, synchronized=True)),
        (0, -2_000_000, 0x2001, ClockState(-0.002, synchronized=True)),
        (5, 0, 0x0040, ClockState(0.0, synchronized=False)),
    ],
)
def test_offsets_come_in_two_units(state: int, offset: int, status: int, expected: ClockState):
    """Offsets are in microseconds, or in nanoseconds if the status says so.

    A clock in state 5 is not synchronized.
    """
    assert clock_state(state, offset, status) == expected


def test_the_c_library_is_asked():
    """The real `adjtimex` call returns a plausible offset, or nothing if it is not permitted."""
    state = load_adjtimex()()
    assert state is None or abs(state.offset_seconds) < 1.0


def test_a_stat_without_a_boot_time_is_an_error(roots: Roots):
    """The error for a `/proc/stat` without a boot time names the file and the field."""
    (roots.procfs / "stat").write_text("cpu 1 2 3\n")
    with pytest.raises(SourceError, match="stat has no btime"):
        KernelSource(roots=roots).read()


def test_this_machine_agrees_with_psutil():
    """The boot time agrees with psutil's, and the time with that of Python."""
    reading = KernelSource().read()
    assert reading.boot_time_seconds == pytest.approx(psutil.boot_time(), abs=1)
    assert reading.time_seconds == pytest.approx(time.time(), abs=5)
