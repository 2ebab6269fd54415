"""Tests for the CPU collector."""

from __future__ import annotations

from pathlib import Path

from trainvitals.metrics.collectors.cpu import CpuCollector
from trainvitals.sources.files import Roots

FIRST = {
    "host_load1": 1.5,
    "host_load5": 0.75,
    "host_load15": 0.25,
    "host_processes_running": 3,
    "host_processes_blocked": 1,
    'host_cpu_seconds_total{mode="user"}': 400.0,
    'host_cpu_seconds_total{mode="nice"}': 10.0,
    'host_cpu_seconds_total{mode="system"}': 150.0,
    'host_cpu_seconds_total{mode="idle"}': 9000.0,
    'host_cpu_seconds_total{mode="iowait"}': 70.0,
    'host_cpu_seconds_total{mode="irq"}': 0.0,
    'host_cpu_seconds_total{mode="softirq"}': 5.0,
    'host_cpu_seconds_total{mode="steal"}': 1.0,
    'host_cpu_core_busy_seconds_total{cpu="0"}': 154.0,
    'host_cpu_core_busy_seconds_total{cpu="1"}': 144.0,
    'host_cpu_core_busy_seconds_total{cpu="2"}': 139.0,
    'host_cpu_core_busy_seconds_total{cpu="3"}': 129.0,
    'host_cpu_cores{kind="logical"}': 4,
    'host_cpu_cores{kind="physical"}': 2,
    'host_cpu_frequency_hertz{statistic="mean"}': 2_300_000_000.0,
    'host_cpu_frequency_hertz{statistic="min"}': 1_200_000_000,
    'host_cpu_frequency_hertz{statistic="max"}': 3_500_000_000,
}


def test_the_first_scrape_has_these_samples(roots: Roots, samples):
    """The first scrape has all samples except the utilization, which needs two readings."""
    collector = CpuCollector(roots=roots)
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == FIRST
    assert collector.complaint(reading) is None
    collector.close()


def test_without_a_load_the_rest_is_there(roots: Roots, samples):
    """Without `/proc/loadavg`, only the load averages are absent."""
    (roots.procfs / "loadavg").unlink()
    collector = CpuCollector(roots=roots)
    found = samples(collector.express(collector.read(0.0)))
    assert found == {name: value for name, value in FIRST.items() if "host_load" not in name}
    collector.close()


def test_the_second_scrape_has_utilization(roots: Roots, samples):
    """The second scrape has the utilization and the I/O wait since the first scrape."""
    now = 1000.0
    collector = CpuCollector(roots=roots, clock=lambda: now)
    collector.read(0.0)
    now += 15.0
    path = roots.procfs / "stat"
    path.write_text(
        path.read_text().replace(
            "cpu  40000 1000 15000 900000 7000 0 500 100",
            "cpu  40090 1000 15000 900060 7040 0 500 110",
        )
    )
    found = samples(collector.express(collector.read(0.0)))
    assert found["cpu_utilization_percent"] == 50.0
    assert found["host_io_wait_ratio"] == 0.2
    assert len(found) == len(FIRST) + 2
    collector.close()


def test_a_virtual_machine_without_frequencies_has_none(roots: Roots, samples):
    """If `/sys` has no frequencies and topology, these metrics are absent."""
    collector = CpuCollector(roots=Roots(procfs=roots.procfs, sysfs=Path("/nowhere")))
    found = samples(collector.express(collector.read(0.0)))
    assert not [key for key in found if "frequency" in key or "physical" in key]
    collector.close()


def test_cores_beyond_the_bound_are_omitted(roots: Roots, samples):
    """With a limit of three cores, the fourth has no series and counts as omitted."""
    collector = CpuCollector(roots=roots, max_cores=3)
    reading = collector.read(0.0)
    assert len([key for key in samples(collector.express(reading)) if "core_busy" in key]) == 3
    assert collector.omitted(reading) == 1
    collector.close()


def test_a_core_that_goes_offline_leaves_no_series(roots: Roots, samples):
    """A core that goes offline has no series, and the other cores keep theirs."""
    collector = CpuCollector(roots=roots)
    before = collector.express(collector.read(0.0))
    path = roots.procfs / "stat"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("cpu1 ")))
    after = collector.express(collector.read(0.0))
    found = samples(after)
    assert 'host_cpu_core_busy_seconds_total{cpu="1"}' not in found
    assert found['host_cpu_core_busy_seconds_total{cpu="3"}'] == 129.0
    assert after[1].shape != before[1].shape
    collector.close()
