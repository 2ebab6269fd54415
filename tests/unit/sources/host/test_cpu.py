"""Tests for the CPU source."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.cpu import CpuSource
from trainvitals.sources.host.frequency import Frequencies


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def write_total(roots: Roots, line: str) -> None:
    """Replace the line for all cores together in `/proc/stat`."""
    path = roots.procfs / "stat"
    _, _, rest = path.read_text().partition("\n")
    path.write_text(f"{line}\n{rest}")


def test_the_fake_machine_is_read_in_seconds(roots: Roots):
    """Ticks are converted to seconds, and the time of guests is not counted twice."""
    reading = CpuSource(roots=roots, ticks_per_second=100).read()
    assert reading.mode_seconds == (400.0, 10.0, 150.0, 9000.0, 70.0, 0.0, 5.0, 1.0)
    assert reading.cores == ("0", "1", "2", "3")
    assert reading.core_busy_seconds == (154.0, 144.0, 139.0, 129.0)
    assert reading.dropped == 0
    assert (reading.logical, reading.physical) == (4, 2)
    assert (reading.load1, reading.load5, reading.load15) == (1.5, 0.75, 0.25)
    assert (reading.processes_running, reading.processes_blocked) == (3, 1)
    assert reading.frequencies == Frequencies(
        mean_hertz=2_300_000_000.0, min_hertz=1_200_000_000, max_hertz=3_500_000_000
    )


def test_the_first_reading_has_no_utilization(roots: Roots):
    """The utilization is unknown at the first reading, as it is computed from two readings."""
    reading = CpuSource(roots=roots).read()
    assert (reading.utilization_percent, reading.io_wait_ratio) == (None, None)


def test_utilization_is_a_mean_since_a_reading_one_second_old(roots: Roots):
    """Idle time and I/O wait time do not count as utilization, but stolen time does."""
    clock = Clock()
    source = CpuSource(roots=roots, clock=clock, ticks_per_second=100)
    source.read()
    clock.now += 1.0
    # 200 ticks more: 90 user, 10 steal, 60 idle, 40 iowait
    write_total(roots, "cpu  40090 1000 15000 900060 7040 0 500 110 200 0")
    reading = source.read()
    assert reading.utilization_percent == 50.0
    assert reading.io_wait_ratio == 0.2


def test_two_scrapers_at_different_paces_both_get_a_second(roots: Roots):
    """A scrape 0.1 s after another is compared with a reading that is at least 1 s old."""
    clock = Clock()
    source = CpuSource(roots=roots, clock=clock)
    source.read()
    clock.now = 1010.0
    write_total(roots, "cpu  40000 1000 15000 901000 7000 0 500 100 0 0")
    assert source.read().utilization_percent == 0.0
    clock.now = 1010.1
    write_total(roots, "cpu  40100 1000 15000 901000 7000 0 500 100 0 0")
    # since 1000.0: 1100 ticks, 100 of them busy
    assert source.read().utilization_percent == pytest.approx(9.0909, abs=1e-4)
    clock.now = 1011.1
    write_total(roots, "cpu  40150 1000 15000 901150 7000 0 500 100 0 0")
    # since 1010.0: 300 ticks, 150 of them busy
    assert source.read().utilization_percent == 50.0


def test_a_fast_scraper_gets_a_value_once_a_second_has_passed(roots: Roots):
    """With ten scrapes per second, every scrape after the first second has a utilization."""
    clock = Clock()
    source = CpuSource(roots=roots, clock=clock)
    values = []
    for tenth in range(31):
        clock.now = 1000.0 + tenth / 10
        write_total(
            roots, f"cpu  {40000 + 10 * tenth} 1000 15000 {900000 + 10 * tenth} 7000 0 0 0 0 0"
        )
        values.append(source.read().utilization_percent)
    assert values[:10] == [None] * 10
    assert values[10:] == [50.0] * 21


def test_a_machine_that_stood_still_has_no_utilization(roots: Roots):
    """Without any tick between two readings, the utilization is unknown, not zero."""
    clock = Clock()
    source = CpuSource(roots=roots, clock=clock)
    source.read()
    clock.now += 2
    assert source.read().utilization_percent is None


def test_counters_never_go_back(roots: Roots):
    """If the kernel's I/O wait time decreases, the higher value is kept until it is exceeded."""
    clock = Clock()
    source = CpuSource(roots=roots, clock=clock, ticks_per_second=100)
    source.read()
    clock.now += 1
    write_total(roots, "cpu  40100 1000 15000 900000 6900 0 500 100 200 0")
    reading = source.read()
    assert reading.mode_seconds[4] == 70.0
    assert reading.io_wait_ratio == 0.0
    write_total(roots, "cpu  40100 1000 15000 900000 7100 0 500 100 200 0")
    assert source.read().mode_seconds[4] == 71.0


def test_cores_beyond_the_bound_are_counted(roots: Roots):
    """Cores beyond the limit have no values of their own, but the core counts include them."""
    reading = CpuSource(roots=roots, max_cores=3).read()
    assert reading.cores == ("0", "1", "2")
    assert len(reading.core_busy_seconds) == 3
    assert reading.dropped == 1
    assert (reading.logical, reading.physical) == (4, 2)


def test_a_core_that_goes_offline_is_gone(roots: Roots):
    """If a core goes offline, the other cores keep their numbers."""
    source = CpuSource(roots=roots)
    source.read()
    path = roots.procfs / "stat"
    path.write_text(
        "".join(line for line in path.read_text().splitlines(keepends=True) if "cpu1" not in line)
    )
    reading = source.read()
    assert reading.cores == ("0", "2", "3")
    assert reading.core_busy_seconds == (154.0, 139.0, 129.0)
    assert reading.logical == 3


def test_without_topology_physical_cores_are_unknown(roots: Roots):
    """Without `/sys`, the number of physical cores and the frequencies are unknown."""
    reading = CpuSource(roots=Roots(procfs=roots.procfs, sysfs=Path("/nowhere"))).read()
    assert reading.physical is None
    assert reading.frequencies is None


def test_a_stat_of_another_kind_is_an_error(roots: Roots):
    """The error for an invalid `/proc/stat` names the file."""
    (roots.procfs / "stat").write_text("nothing\n")
    with pytest.raises(SourceError, match="proc/stat"):
        CpuSource(roots=roots).read()


@pytest.mark.parametrize("text", ["nan -0.0 inf 1/2 3\n", "", "1.5 0.75\n", None])
def test_a_loadavg_that_cannot_be_read_costs_the_load_alone(roots: Roots, text: str | None):
    """If `/proc/loadavg` is invalid or missing, only the load averages are unknown."""
    path = roots.procfs / "loadavg"
    path.unlink()
    if text is not None:
        path.write_text(text)
    reading = CpuSource(roots=roots).read()
    assert (reading.load1, reading.load5, reading.load15) == (None, None, None)
    assert reading.cores


def test_this_machine_agrees_with_psutil():
    """The user and system times lie between psutil's values before and after the reading."""
    before = psutil.cpu_times()
    reading = CpuSource().read()
    after = psutil.cpu_times()
    assert before.user <= reading.mode_seconds[0] <= after.user
    assert before.system <= reading.mode_seconds[2] <= after.system
    assert reading.logical == psutil.cpu_count()
    assert reading.load5 == pytest.approx(psutil.getloadavg()[1], abs=0.5)
