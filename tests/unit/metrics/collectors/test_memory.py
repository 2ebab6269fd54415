"""Tests for the memory collector."""

from __future__ import annotations

from trainvitals.metrics.collectors.memory import MemoryCollector
from trainvitals.sources.files import Roots


def test_the_fake_machine_has_these_samples(roots: Roots, samples):
    """The used memory is the total memory less the available memory."""
    collector = MemoryCollector(roots=roots)
    reading = collector.read(0.0)
    assert samples(collector.express(reading)) == {
        "memory_usage_bytes": 8_388_608_000,
        "memory_total_bytes": 16_777_216_000,
        "memory_available_bytes": 8_388_608_000,
        "memory_free_bytes": 2_097_152_000,
        "memory_buffers_bytes": 104_857_600,
        "memory_cached_bytes": 6_291_456_000,
        "memory_shared_bytes": 1_048_576_000,
        "memory_dirty_bytes": 524_288,
        "host_swap_total_bytes": 4_194_304_000,
        "host_swap_used_bytes": 1_048_576_000,
        "host_swap_in_bytes_total": 4_096_000,
        "host_swap_out_bytes_total": 12_288_000,
        "host_oom_kills_total": 2,
    }
    assert collector.complaint(reading) is None
    assert collector.omitted(reading) == 0
    collector.close()


def test_what_an_old_kernel_does_not_count_is_absent(roots: Roots, samples):
    """If the kernel does not count OOM kills, only their metric is absent."""
    collector = MemoryCollector(roots=roots)
    before = collector.express(collector.read(0.0))
    path = roots.procfs / "vmstat"
    path.write_text(path.read_text().replace("oom_kill 2\n", ""))
    after = collector.express(collector.read(0.0))
    assert "host_oom_kills_total" not in samples(after)
    assert len(samples(after)) == 12
    assert after[0].shape != before[0].shape
    collector.close()


def test_values_change_and_the_shape_stays(roots: Roots):
    """A second reading with other values has the same shape as the first."""
    collector = MemoryCollector(roots=roots)
    before = collector.express(collector.read(0.0))
    path = roots.procfs / "meminfo"
    path.write_text(path.read_text().replace("8192000", "4096000"))
    after = collector.express(collector.read(0.0))
    assert after[0].shape == before[0].shape
    assert after[0].values[0] == 12_582_912_000
    collector.close()
