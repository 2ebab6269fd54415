"""Tests that host metrics are never negative, whatever numbers the kernel reports."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.conftest import MACHINE
from tests.unit.metrics.collectors.conftest import read_samples
from trainvitals.errors import SourceError
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.collectors.cpu import CpuCollector
from trainvitals.metrics.collectors.disk import DiskCollector
from trainvitals.metrics.collectors.filesystem import FilesystemCollector
from trainvitals.metrics.collectors.memory import MemoryCollector
from trainvitals.metrics.collectors.network import NetworkCollector
from trainvitals.metrics.collectors.pressure import PressureCollector
from trainvitals.metrics.collectors.process import ProcessCollector
from trainvitals.sources.files import Roots

# Unsigned numbers of 32 and 64 bits, including wrapped negative numbers.
UNSIGNED = st.integers(0, 2**64 - 1) | st.sampled_from(
    [0, 1, 2**31, 2**32 - 8, 2**63, 2**64 - 120, 2**64 - 1]
)
SPOILT = st.lists(st.tuples(st.integers(0, 10_000), UNSIGNED), min_size=1, max_size=6)

Make = Callable[[Roots], Collector[Any]]
COLLECTORS: dict[str, tuple[str, Make]] = {
    "memory": ("proc/meminfo", lambda roots: MemoryCollector(roots=roots)),
    "swap": ("proc/vmstat", lambda roots: MemoryCollector(roots=roots)),
    "disk": ("proc/diskstats", lambda roots: DiskCollector(roots=roots)),
    "network": ("proc/1/net/dev", lambda roots: NetworkCollector(roots=roots)),
    "pressure": ("proc/pressure/memory", lambda roots: PressureCollector(roots=roots)),
    "process": ("proc/self/stat", lambda roots: ProcessCollector(procfs=roots.procfs)),
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the fake machine, whose files the examples change."""
    return Path(shutil.copytree(MACHINE, tmp_path_factory.mktemp("numbers") / "machine"))


def spoil(text: str, spoilt: list[tuple[int, int]]) -> str:
    """Replace some of the numbers in a text, except digits within names."""
    places = list(re.finditer(r"(?<=[\s=])\d+", text))
    chosen = {at % len(places): number for at, number in spoilt}
    for at in sorted(chosen, reverse=True):
        text = f"{text[: places[at].start()]}{chosen[at]}{text[places[at].end() :]}"
    return text


def collect(collector: Collector[Any]) -> dict[str, float]:
    """Return the samples of a collector, or none if the collector reports an invalid file."""
    try:
        return read_samples(collector.express(collector.read(0.0)))
    except SourceError:
        return {}


@pytest.mark.parametrize("name", COLLECTORS)
def test_no_number_in_a_file_makes_a_negative_metric(machine: Path, name: str):
    """No number in a file of the kernel makes a metric negative."""
    path, make = COLLECTORS[name]
    roots = Roots(procfs=machine / "proc", sysfs=machine / "sys")
    good = (MACHINE / path).read_text()

    @settings(max_examples=60)
    @given(SPOILT)
    def holds(spoilt: list[tuple[int, int]]) -> None:
        with closing(make(roots)) as collector:
            for text in (good, spoil(good, spoilt), good):
                (machine / path).write_text(text)
                assert [sample for sample in collect(collector).items() if sample[1] < 0] == []

    holds()


@settings(max_examples=60)
@given(spoilt=st.lists(SPOILT, min_size=1, max_size=4))
def test_shares_of_cpu_time_are_shares(machine: Path, spoilt: list[list[tuple[int, int]]]):
    """If CPU times decrease or jump, the utilization stays between 0% and 100%."""
    roots = Roots(procfs=machine / "proc", sysfs=machine / "sys")
    good = (MACHINE / "proc/stat").read_text()
    times: Iterator[float] = iter(range(1000))
    with closing(CpuCollector(roots=roots, clock=lambda: next(times))) as collector:
        for text in (good, *[spoil(good, each) for each in spoilt], good):
            (machine / "proc/stat").write_text(text)
            found = collect(collector)
            assert [sample for sample in found.items() if sample[1] < 0] == []
            assert found.get("cpu_utilization_percent", 0) <= 100
            assert found.get("host_io_wait_ratio", 0) <= 1


@settings(max_examples=60)
@given(numbers=st.tuples(*[UNSIGNED] * 6))
def test_no_file_system_has_more_left_than_it_holds(machine: Path, numbers: tuple[int, ...]):
    """The free space and files of a file system never exceed its size and number of files."""
    roots = Roots(procfs=machine / "proc", sysfs=machine / "sys")
    blocks, free, avail, files, files_free, files_avail = numbers
    answer = os.statvfs_result(
        (4096, 4096, blocks, free, avail, files, files_free, files_avail, 0, 255)
    )
    with closing(FilesystemCollector(roots=roots, statvfs=lambda _: answer)) as collector:
        found = read_samples(collector.express(collector.read(float("inf"))))
    pairs = (
        ("host_filesystem_avail_bytes", "host_filesystem_size_bytes"),
        ("host_filesystem_files_free", "host_filesystem_files"),
    )
    for part, whole in pairs:
        parts = [value for name, value in found.items() if name.startswith(part + "{")]
        wholes = [value for name, value in found.items() if name.startswith(whole + "{")]
        assert all(0 <= one <= of for one, of in zip(parts, wholes, strict=True))
