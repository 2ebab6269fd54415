"""Memory and swap."""

from __future__ import annotations

import psutil
import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.memory import MemoryReading, MemorySource


def test_the_fake_machine_is_read_in_bytes(roots: Roots):
    """Kilobytes and pages become bytes."""
    reading = MemorySource(roots=roots, page_bytes=4096).read()
    assert reading == MemoryReading(
        total_bytes=16_777_216_000,
        available_bytes=8_388_608_000,
        free_bytes=2_097_152_000,
        buffers_bytes=104_857_600,
        cached_bytes=6_291_456_000,
        shared_bytes=1_048_576_000,
        dirty_bytes=524_288,
        swap_total_bytes=4_194_304_000,
        swap_free_bytes=3_145_728_000,
        swap_in_bytes=4_096_000,
        swap_out_bytes=12_288_000,
        oom_kills=2,
    )
    assert reading.used_bytes == 8_388_608_000
    assert reading.swap_used_bytes == 1_048_576_000


def test_an_ancient_kernel_is_an_error_that_names_the_field(roots: Roots):
    """Without MemAvailable there is no reading."""
    path = roots.procfs / "meminfo"
    path.write_text(path.read_text().replace("MemAvailable:", "MemOther:"))
    with pytest.raises(SourceError, match="has no MemAvailable"):
        MemorySource(roots=roots).read()


def test_an_old_kernel_counts_no_oom_kills(roots: Roots):
    """Without oom_kill in vmstat the count is unknown and the rest is read."""
    path = roots.procfs / "vmstat"
    path.write_text(path.read_text().replace("oom_kill 2\n", ""))
    reading = MemorySource(roots=roots, page_bytes=4096).read()
    assert reading.oom_kills is None
    assert reading.swap_in_bytes == 4_096_000


def test_without_vmstat_its_counters_are_unknown(roots: Roots):
    """A missing vmstat leaves the sizes."""
    (roots.procfs / "vmstat").unlink()
    reading = MemorySource(roots=roots).read()
    assert (reading.swap_in_bytes, reading.swap_out_bytes, reading.oom_kills) == (None, None, None)
    assert reading.total_bytes == 16_777_216_000


def test_without_meminfo_there_is_an_error(roots: Roots):
    """Every machine has meminfo."""
    (roots.procfs / "meminfo").unlink()
    with pytest.raises(SourceError, match="cannot find"):
        MemorySource(roots=roots).read()


def test_this_machine_agrees_with_psutil():
    """Totals are equal, and what moves is within a few percent."""
    theirs, swap = psutil.virtual_memory(), psutil.swap_memory()
    reading = MemorySource().read()
    assert reading.total_bytes == theirs.total
    assert reading.available_bytes == pytest.approx(theirs.available, rel=0.1)
    assert reading.swap_total_bytes == swap.total
    assert reading.used_bytes + reading.available_bytes == reading.total_bytes
