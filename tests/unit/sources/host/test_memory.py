"""Tests for the readings of memory and swap."""

from __future__ import annotations

import re
from dataclasses import replace

import psutil
import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.memory import MemoryReading, MemorySource


def test_the_fake_machine_is_read_in_bytes(roots: Roots):
    """The kilobytes in `meminfo` and the pages in `vmstat` are converted to bytes."""
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


FIELDS = {
    "MemAvailable": "available_bytes",
    "MemFree": "free_bytes",
    "Buffers": "buffers_bytes",
    "Cached": "cached_bytes",
    "Shmem": "shared_bytes",
    "Dirty": "dirty_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
}


def rewrite_meminfo(roots: Roots, field: str, line: str) -> None:
    """Replace the line of one field in `meminfo`."""
    path = roots.procfs / "meminfo"
    path.write_text(re.sub(rf"(?m)^{field}:.*\n", line, path.read_text()))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [None, "-8 kB", "many kB", "8", "18446744073709551496 kB"])
def test_a_field_that_is_missing_or_makes_no_sense_costs_itself_alone(
    roots: Roots, field: str, value: str | None
):
    """A missing or invalid field does not prevent reading the unrelated fields of `meminfo`.

    Linux before 3.14 has no `MemAvailable`, gVisor has no swap fields, WSL 1 has no `Buffers`, and
    lxcfs writes values such as 2^64 - 120.
    """
    whole = MemorySource(roots=roots).read()
    rewrite_meminfo(roots, field, "" if value is None else f"{field}: {value}\n")
    expected = replace(whole, **{FIELDS[field]: None})
    if field == "SwapTotal":  # the free swap cannot be compared with the total
        expected = replace(expected, swap_free_bytes=None)
    assert MemorySource(roots=roots).read() == expected


def test_what_is_used_is_unknown_where_a_part_is_unknown(roots: Roots):
    """The used memory or swap is unknown if the available memory or the free swap is unknown."""
    for field in ("MemAvailable", "SwapFree"):
        rewrite_meminfo(roots, field, "")
    reading = MemorySource(roots=roots).read()
    assert (reading.used_bytes, reading.swap_used_bytes) == (None, None)


def test_without_swap_none_of_it_is_used(roots: Roots):
    """Without swap the used swap is 0, even if lxcfs reports more than 2^63 bytes of free swap."""
    rewrite_meminfo(roots, "SwapTotal", "SwapTotal: 0 kB\n")
    rewrite_meminfo(roots, "SwapFree", "SwapFree: 18446744073709346016 kB\n")
    reading = MemorySource(roots=roots).read()
    assert (reading.swap_total_bytes, reading.swap_free_bytes) == (0, None)
    assert reading.swap_used_bytes == 0


def test_without_a_limit_swap_has_no_size(roots: Roots):
    """If `SwapTotal` is the kernel's number for no limit, as in lxcfs 2.0.6, it is unknown."""
    rewrite_meminfo(roots, "SwapTotal", "SwapTotal: 9007199246672720 kB\n")
    rewrite_meminfo(roots, "SwapFree", "SwapFree: 9007199246535028 kB\n")
    reading = MemorySource(roots=roots).read()
    assert (reading.swap_total_bytes, reading.swap_used_bytes) == (None, None)


def test_what_has_no_total_is_no_meminfo(roots: Roots):
    """If `meminfo` has no `MemTotal`, the error names the file."""
    rewrite_meminfo(roots, "MemTotal", "")
    with pytest.raises(SourceError, match=r"cannot understand .*meminfo"):
        MemorySource(roots=roots).read()


def test_an_old_kernel_counts_no_oom_kills(roots: Roots):
    """Without `oom_kill` in `vmstat` the number of OOM kills is unknown, and the rest is read."""
    path = roots.procfs / "vmstat"
    path.write_text(path.read_text().replace("oom_kill 2\n", ""))
    reading = MemorySource(roots=roots, page_bytes=4096).read()
    assert reading.oom_kills is None
    assert reading.swap_in_bytes == 4_096_000


def test_without_vmstat_its_counters_are_unknown(roots: Roots):
    """If `vmstat` is missing, its counters are unknown, and the memory sizes are still read."""
    (roots.procfs / "vmstat").unlink()
    reading = MemorySource(roots=roots).read()
    assert (reading.swap_in_bytes, reading.swap_out_bytes, reading.oom_kills) == (None, None, None)
    assert reading.total_bytes == 16_777_216_000


def test_without_meminfo_there_is_an_error(roots: Roots):
    """A missing `meminfo` is an error, because every machine has this file."""
    (roots.procfs / "meminfo").unlink()
    with pytest.raises(SourceError, match="cannot find"):
        MemorySource(roots=roots).read()


def test_this_machine_agrees_with_psutil():
    """The totals equal those of psutil, and the available memory differs by at most 10%."""
    theirs, swap = psutil.virtual_memory(), psutil.swap_memory()
    reading = MemorySource().read()
    assert reading.total_bytes == theirs.total
    assert reading.available_bytes == pytest.approx(theirs.available, rel=0.1)
    assert reading.swap_total_bytes == swap.total
    assert reading.used_bytes == reading.total_bytes - reading.available_bytes
