"""Tests for the kernel collector."""

from __future__ import annotations

from trainvitals.metrics.collectors.kernel import KernelCollector
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel import ClockState


def test_the_fake_machine_has_these_samples(roots: Roots, samples):
    """The boot time, the time, the clock offset and the synchronisation are exported."""
    collector = KernelCollector(
        roots=roots,
        clock=lambda: 1_700_086_400.5,
        adjtimex=lambda: ClockState(offset_seconds=0.002, synchronized=True),
    )
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {
        "host_boot_time_seconds": 1_700_000_000,
        "host_time_seconds": 1_700_086_400.5,
        "host_clock_offset_seconds": 0.002,
        "host_clock_synchronized": 1,
    }
    assert collector.complaint(reading) is None
    assert collector.omitted(reading) == 0
    collector.close()


def test_a_clock_that_may_not_be_asked_has_no_error(roots: Roots, samples):
    """If reading the clock state is not permitted, its metrics are absent without a complaint."""
    collector = KernelCollector(roots=roots, clock=lambda: 1_700_086_400.5, adjtimex=lambda: None)
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {
        "host_boot_time_seconds": 1_700_000_000,
        "host_time_seconds": 1_700_086_400.5,
    }
    assert collector.complaint(reading) is None
    collector.close()
