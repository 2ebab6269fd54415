"""Tests for the counts of OOM kills and GPU errors in the kernel log."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainvitals.sources.host.kernel_log import (
    KernelTally,
    KernelTallyReading,
    XidCount,
    name_as_nvml,
)

NOON = 1_700_049_600.0
UPTIME = 50_000.0
NONE = {"memcg": 0, "host": 0, "cpuset": 0, "memory_policy": 0}


def write(path: Path, *texts: str, at: float) -> None:
    """Write records that are dated at a number of seconds since boot."""
    with path.open("a", encoding="ascii") as file:
        for text in texts:
            file.write(f"4,{path.stat().st_size},{int(at * 1e6)},-;{text}\n")


def tally(path: Path, *, most: int = 64) -> KernelTally:
    """Return a tally that begins to count at noon."""
    return KernelTally(path, most=most, clock=lambda: NOON, monotonic=lambda: UPTIME)


def xid(code: int, bus: str = "0000:3b:00") -> str:
    """Return the kernel log line that the driver writes for a GPU error."""
    return f"NVRM: Xid (PCI:{bus}): {code}, pid=7, x"


def kill(constraint: str, pid: int) -> str:
    """Return a kernel log line that reports an OOM kill."""
    return (
        f"oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        f"task_memcg=/x,task=python,pid={pid},uid=0"
    )


def test_what_was_before_is_not_counted_but_known(tmp_path: Path):
    """The count of earlier GPU errors begins at 0, so that the next error is an increase."""
    path = tmp_path / "kmsg"
    write(path, xid(63), kill("CONSTRAINT_NONE", 7), at=100.0)
    counts = tally(path)
    assert counts.read() == KernelTallyReading(
        NONE, (XidCount("00000000:3B:00.0", 63, 0, NOON - UPTIME + 100.0),)
    )
    write(path, xid(63), xid(79), at=UPTIME)
    reading = counts.read()
    assert reading.oom_kills == NONE
    assert reading.xids == (
        XidCount("00000000:3B:00.0", 63, 1, NOON),
        XidCount("00000000:3B:00.0", 79, 1, NOON),
    )
    counts.close()


@pytest.mark.parametrize(
    ("constraint", "label"),
    [
        ("CONSTRAINT_MEMCG", "memcg"),
        ("CONSTRAINT_NONE", "host"),
        ("CONSTRAINT_CPUSET", "cpuset"),
        ("CONSTRAINT_MEMORY_POLICY", "memory_policy"),
    ],
)
def test_kills_are_counted_by_what_ran_out(tmp_path: Path, constraint: str, label: str):
    """Kills are counted by the kernel's four constraints, and an unknown constraint is ignored."""
    path = tmp_path / "kmsg"
    path.touch()
    counts = tally(path)
    assert counts.read().oom_kills == NONE
    write(path, kill(constraint, 7), kill(constraint, 8), kill("CONSTRAINT_NEW", 9), at=UPTIME)
    counts.read()
    assert counts.read().oom_kills == {**NONE, label: 2}
    counts.close()


def test_kinds_of_errors_are_bounded(tmp_path: Path):
    """At the limit, known kinds of errors are still counted, and new kinds count as omitted."""
    path = tmp_path / "kmsg"
    path.touch()
    counts = tally(path, most=2)
    write(path, xid(13), xid(31), xid(45), xid(48), xid(45), xid(13), at=UPTIME)
    reading = counts.read()
    assert [(count.code, count.errors) for count in reading.xids] == [(13, 2), (31, 1)]
    assert reading.omitted == 2
    counts.close()


def test_a_log_that_cannot_be_read_counts_nothing(tmp_path: Path):
    """If the log cannot be read, the number of OOM kills is unknown rather than 0."""
    assert tally(tmp_path / "kmsg").read() == KernelTallyReading(None)


@pytest.mark.parametrize(
    ("bus_id", "expected"),
    [
        ("0000:3b:00", "00000000:3B:00.0"),
        ("0000:3b:00.0", "00000000:3B:00.0"),
        ("0001:c1:00", "00000001:C1:00.0"),
        ("00000000:3B:00.1", "00000000:3B:00.1"),
    ],
)
def test_an_address_is_written_as_the_driver_library_does(bus_id: str, expected: str):
    """PCI addresses are written as NVML writes them, so that errors join with GPU metrics."""
    assert name_as_nvml(bus_id) == expected
