"""Tests that sources handle files with arbitrary content."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.conftest import MACHINE
from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.cpu import CpuSource
from trainvitals.sources.host.disk import DiskSource
from trainvitals.sources.host.filesystem import FilesystemSource
from trainvitals.sources.host.kernel import KernelSource
from trainvitals.sources.host.memory import MemorySource
from trainvitals.sources.host.network import NetworkSource
from trainvitals.sources.host.pressure import PressureSource
from trainvitals.sources.host.process import ProcessSource


class Source(Protocol):
    """The methods of a source that reads without arguments."""

    def read(self) -> object:
        """Read the source."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class Filesystems:
    """The source of file systems, read without waiting."""

    def __init__(self, roots: Roots) -> None:
        self.source = FilesystemSource(roots=roots)

    def read(self) -> object:
        """Read without waiting for a file system that hangs."""
        return self.source.read(0.0)

    def close(self) -> None:
        """Close the files."""
        self.source.close()


Make = Callable[[Roots], Source]


def make_reader(roots: Roots) -> Source:
    """Return a source of processes that has one child process, whose file is modified."""
    return ProcessSource(procfs=roots.procfs, children=lambda: (4300,))


SOURCES: list[tuple[str, Make]] = [
    ("proc/stat", lambda roots: CpuSource(roots=roots)),
    ("proc/loadavg", lambda roots: CpuSource(roots=roots)),
    (
        "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq",
        lambda roots: CpuSource(roots=roots),
    ),
    (
        "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
        lambda roots: CpuSource(roots=roots),
    ),
    ("proc/meminfo", lambda roots: MemorySource(roots=roots)),
    ("proc/vmstat", lambda roots: MemorySource(roots=roots)),
    ("proc/diskstats", lambda roots: DiskSource(roots=roots)),
    ("proc/1/net/dev", lambda roots: NetworkSource(roots=roots)),
    ("sys/class/net/eth0/operstate", lambda roots: NetworkSource(roots=roots)),
    ("sys/class/net/eth0/speed", lambda roots: NetworkSource(roots=roots)),
    ("proc/pressure/io", lambda roots: PressureSource(roots=roots)),
    ("proc/stat", lambda roots: KernelSource(roots=roots, adjtimex=lambda: None)),
    ("proc/self/stat", lambda roots: ProcessSource(procfs=roots.procfs)),
    ("proc/4300/stat", make_reader),
    ("proc/self/mountinfo", Filesystems),
]

NUMBERS = st.integers(-(2**70), 2**70) | st.just(10**400) | st.just(10**5000 // 7**9)
BYTES = (
    st.binary(max_size=40)
    | NUMBERS.map(lambda number: b" %s " % hex(number).encode())
    | st.integers(-(2**70), 2**70).map(lambda number: b" %d " % number)
    | st.just(b"9" * 5000)
    | st.sampled_from(
        [b"nan", b"-0", b"-0.0", b"inf", b"1_0", b"\n", b"\0", b" - ", b"../..", b"/"]
    )
)


@st.composite
def spoiled(draw: st.DrawFn, good: bytes) -> bytes:
    """Draw arbitrary bytes, or the valid content with a part replaced."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=300))
    start = draw(st.integers(0, len(good)))
    end = draw(st.integers(start, min(len(good), start + 30)))
    return good[:start] + draw(BYTES) + good[end:]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the simulated machine, whose files are modified by the test."""
    return Path(shutil.copytree(MACHINE, tmp_path_factory.mktemp("hostile") / "machine"))


@pytest.mark.parametrize(
    ("path", "make"), SOURCES, ids=[f"{i}-{path}" for i, (path, _) in enumerate(SOURCES)]
)
def test_nothing_but_a_source_error_is_raised(machine: Path, path: str, make: Make):
    """Arbitrary content is read, or raises a `SourceError` whose one line names the file."""
    roots = Roots(procfs=machine / "proc", sysfs=machine / "sys")
    good = (MACHINE / path).read_bytes()

    @settings(max_examples=60)
    @given(spoiled(good))
    def holds(data: bytes) -> None:
        (machine / path).write_bytes(data)
        source = make(roots)
        message = path
        try:
            source.read()
        except SourceError as error:
            message = str(error)
        finally:
            source.close()
        assert path.rpartition("/")[2] in message
        assert "\n" not in message

    holds()
    (machine / path).write_bytes(good)
