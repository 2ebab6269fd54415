"""Tests for the disk collector."""

from __future__ import annotations

from trainvitals.metrics.collectors.disk import DiskCollector
from trainvitals.sources.files import Roots


def test_the_fake_machine_has_these_samples(roots: Roots, samples):
    """Every disk has its metrics, and the totals do not count the logical volume again."""
    collector = DiskCollector(roots=roots)
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {
        'disk_io_bytes{direction="read"}': 20_889_600_000,
        'disk_io_bytes{direction="write"}': 860_160_000,
        'host_disk_read_bytes_total{device="sda"}': 409_600_000,
        'host_disk_read_bytes_total{device="nvme0n1"}': 20_480_000_000,
        'host_disk_read_bytes_total{device="dm-0"}': 358_400_000,
        'host_disk_written_bytes_total{device="sda"}': 819_200_000,
        'host_disk_written_bytes_total{device="nvme0n1"}': 40_960_000,
        'host_disk_written_bytes_total{device="dm-0"}': 768_000_000,
        'host_disk_reads_completed_total{device="sda"}': 10_000,
        'host_disk_reads_completed_total{device="nvme0n1"}': 50_000,
        'host_disk_reads_completed_total{device="dm-0"}': 9_000,
        'host_disk_writes_completed_total{device="sda"}': 20_000,
        'host_disk_writes_completed_total{device="nvme0n1"}': 1_000,
        'host_disk_writes_completed_total{device="dm-0"}': 19_000,
        'host_disk_read_seconds_total{device="sda"}': 5.0,
        'host_disk_read_seconds_total{device="nvme0n1"}': 25.0,
        'host_disk_read_seconds_total{device="dm-0"}': 4.5,
        'host_disk_write_seconds_total{device="sda"}': 12.0,
        'host_disk_write_seconds_total{device="nvme0n1"}': 0.5,
        'host_disk_write_seconds_total{device="dm-0"}': 11.0,
        'host_disk_io_seconds_total{device="sda"}': 9.0,
        'host_disk_io_seconds_total{device="nvme0n1"}': 15.0,
        'host_disk_io_seconds_total{device="dm-0"}': 8.0,
        'host_disk_io_weighted_seconds_total{device="sda"}': 17.0,
        'host_disk_io_weighted_seconds_total{device="nvme0n1"}': 25.5,
        'host_disk_io_weighted_seconds_total{device="dm-0"}': 15.5,
        'host_disk_io_now{device="sda"}': 2,
        'host_disk_io_now{device="nvme0n1"}': 0,
        'host_disk_io_now{device="dm-0"}': 1,
    }
    assert collector.complaint(reading) is None
    collector.close()


def test_disks_beyond_the_bound_are_omitted(roots: Roots, samples):
    """With a limit of one disk, the other two have no series and count as omitted."""
    collector = DiskCollector(roots=roots, limit=1)
    reading = collector.read(0.0)
    found = samples(collector.express(reading))
    assert [key for key in found if "io_now" in key] == ['host_disk_io_now{device="sda"}']
    assert collector.omitted(reading) == 2
    collector.close()


def test_a_disk_that_is_pulled_leaves_no_series(roots: Roots, samples):
    """A removed disk has no series, and the other disks keep their values."""
    collector = DiskCollector(roots=roots)
    before = collector.express(collector.read(0.0))
    path = roots.procfs / "diskstats"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if " sda" not in line))
    after = collector.express(collector.read(0.0))
    found = samples(after)
    assert not [key for key in found if "sda" in key]
    assert found['host_disk_read_bytes_total{device="nvme0n1"}'] == 20_480_000_000
    assert after[-1].shape != before[-1].shape
    collector.close()


def test_a_machine_without_disks_has_read_nothing(roots: Roots, samples):
    """On a machine without disks, the totals are 0."""
    (roots.procfs / "diskstats").write_text("")
    collector = DiskCollector(roots=roots)
    assert samples(collector.express(collector.read(0.0))) == {
        'disk_io_bytes{direction="read"}': 0,
        'disk_io_bytes{direction="write"}': 0,
    }
    collector.close()


def test_a_kernel_that_does_not_count_has_no_samples(roots: Roots):
    """Without `/proc/diskstats`, there are no samples."""
    (roots.procfs / "diskstats").unlink()
    collector = DiskCollector(roots=roots)
    assert collector.express(collector.read(0.0)) == ()
    collector.close()
