"""Tests for the rates of disks and network interfaces."""

from trainvitals.record.snapshot import Flows
from trainvitals.record.watcher import FlowMeter
from trainvitals.sources.host.disk import DiskReading
from trainvitals.sources.host.network import NetworkReading


def test_counters_become_rates():
    """A first reading and a reset counter have no rate; after a gap, the rate is the mean."""
    times = iter([10.0, 12.0, 14.0, 18.0])
    meter = FlowMeter(clock=lambda: next(times))
    assert meter.measure(DiskReading((), 0, 100, 0), NetworkReading((), 0, 50, 50)) == Flows()
    assert meter.measure(DiskReading((), 0, 300, 8), None) == Flows(100.0, 4.0)
    assert meter.measure(DiskReading((), 0, 20, 8), NetworkReading((), 0, 60, 60)) == Flows(
        None, 0.0
    )
    assert meter.measure(None, NetworkReading((), 0, 100, 64)) == Flows(None, None, 10.0, 1.0)
