"""Tests for the network collector."""

from __future__ import annotations

from trainvitals.metrics.collectors.network import NetworkCollector
from trainvitals.sources.files import Roots


def test_the_fake_machine_has_these_samples(roots: Roots, samples):
    """Every interface except the loopback has its metrics, for both directions."""
    collector = NetworkCollector(roots=roots)
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {
        'network_io_bytes{direction="receive"}': 900_000_000,
        'network_io_bytes{direction="transmit"}': 300_000_000,
        'host_network_bytes_total{device="eth0",direction="receive"}': 900_000_000,
        'host_network_bytes_total{device="eth1",direction="receive"}': 0,
        'host_network_bytes_total{device="docker0",direction="receive"}': 700_000,
        'host_network_bytes_total{device="eth0",direction="transmit"}': 300_000_000,
        'host_network_bytes_total{device="eth1",direction="transmit"}': 0,
        'host_network_bytes_total{device="docker0",direction="transmit"}': 800_000,
        'host_network_packets_total{device="eth0",direction="receive"}': 700_000,
        'host_network_packets_total{device="eth1",direction="receive"}': 0,
        'host_network_packets_total{device="docker0",direction="receive"}': 900,
        'host_network_packets_total{device="eth0",direction="transmit"}': 400_000,
        'host_network_packets_total{device="eth1",direction="transmit"}': 0,
        'host_network_packets_total{device="docker0",direction="transmit"}': 950,
        'host_network_errors_total{device="eth0",direction="receive"}': 3,
        'host_network_errors_total{device="eth1",direction="receive"}': 0,
        'host_network_errors_total{device="docker0",direction="receive"}': 0,
        'host_network_errors_total{device="eth0",direction="transmit"}': 1,
        'host_network_errors_total{device="eth1",direction="transmit"}': 0,
        'host_network_errors_total{device="docker0",direction="transmit"}': 0,
        'host_network_dropped_total{device="eth0",direction="receive"}': 5,
        'host_network_dropped_total{device="eth1",direction="receive"}': 0,
        'host_network_dropped_total{device="docker0",direction="receive"}': 0,
        'host_network_dropped_total{device="eth0",direction="transmit"}': 2,
        'host_network_dropped_total{device="eth1",direction="transmit"}': 0,
        'host_network_dropped_total{device="docker0",direction="transmit"}': 0,
        'host_network_up{device="eth0"}': 1,
        'host_network_up{device="eth1"}': 0,
        'host_network_up{device="docker0"}': 1,
        'host_network_speed_bytes{device="eth0"}': 3_125_000_000,
    }
    assert collector.complaint(reading) is None
    collector.close()


def test_interfaces_beyond_the_bound_are_omitted(roots: Roots, samples):
    """With a limit of one interface, the other two have no series and count as omitted."""
    collector = NetworkCollector(roots=roots, limit=1)
    reading = collector.read(0.0)
    found = samples(collector.express(reading))
    assert [key for key in found if "_up" in key] == ['host_network_up{device="eth0"}']
    assert collector.omitted(reading) == 2
    collector.close()


def test_an_interface_that_goes_leaves_no_series(roots: Roots, samples):
    """A removed interface has no series, and the other interfaces keep their values."""
    collector = NetworkCollector(roots=roots)
    before = collector.express(collector.read(0.0))
    path = roots.procfs / "1/net/dev"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "eth0" not in line))
    after = collector.express(collector.read(0.0))
    found = samples(after)
    assert not [key for key in found if "eth0" in key]
    assert found['host_network_bytes_total{device="docker0",direction="transmit"}'] == 800_000
    assert after[-1].shape != before[-1].shape
    collector.close()


def test_a_link_that_goes_down_loses_its_speed(roots: Roots, samples):
    """The speed of an interface without a link is absent."""
    collector = NetworkCollector(roots=roots)
    before = collector.express(collector.read(0.0))
    (roots.sysfs / "class/net/eth0/operstate").write_text("down\n")
    after = collector.express(collector.read(0.0))
    found = samples(after)
    assert found['host_network_up{device="eth0"}'] == 0
    assert 'host_network_speed_bytes{device="eth0"}' not in found
    assert after[-1].shape != before[-1].shape
    collector.close()


def test_a_machine_with_a_loopback_alone_has_only_totals(roots: Roots, samples):
    """On a machine with only a loopback interface, the only metrics are totals of 0."""
    path = roots.procfs / "1/net/dev"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    collector = NetworkCollector(roots=roots)
    assert samples(collector.express(collector.read(0.0))) == {
        'network_io_bytes{direction="receive"}': 0,
        'network_io_bytes{direction="transmit"}': 0,
    }
    collector.close()
