"""Tests for the pressure collector."""

from __future__ import annotations

import shutil

from trainvitals.metrics.collectors.pressure import PressureCollector
from trainvitals.sources.files import Roots


def test_the_fake_machine_has_these_samples(roots: Roots, samples):
    """Each resource has the levels that the kernel reports; full CPU stalls are not exported."""
    collector = PressureCollector(roots=roots)
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {
        'host_pressure_stalled_seconds_total{resource="cpu",level="some"}': 8.520977,
        'host_pressure_stalled_seconds_total{resource="io",level="some"}': 7.3903,
        'host_pressure_stalled_seconds_total{resource="io",level="full"}': 7.154271,
        'host_pressure_stalled_seconds_total{resource="irq",level="full"}': 0.487083,
        'host_pressure_stalled_seconds_total{resource="memory",level="some"}': 1.5,
        'host_pressure_stalled_seconds_total{resource="memory",level="full"}': 0.25,
    }
    assert collector.complaint(reading) is None
    assert collector.omitted(reading) == 0
    collector.close()


def test_a_kernel_without_pressure_has_no_samples(roots: Roots):
    """Without `/proc/pressure`, there are no samples and no complaint."""
    shutil.rmtree(roots.procfs / "pressure")
    collector = PressureCollector(roots=roots)
    reading = collector.read(0.0)
    assert collector.express(reading) == ()
    assert collector.complaint(reading) is None
    collector.close()
