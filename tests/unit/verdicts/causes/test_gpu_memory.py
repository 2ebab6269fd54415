"""The memory figures in PyTorch's out-of-memory messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.verdicts.causes.gpu_memory import MemoryReport, parse_report

MIB = 1 << 20
NEW = (
    "Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 79.00 GiB of which 41.25 MiB is free."
    " Including non-PyTorch memory, this process has 78.50 GiB memory in use. Of the allocated memory"
    " 77.00 GiB is allocated by PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated."
)
OLD = (
    "Tried to allocate 2.25 GiB (GPU 3; 15.50 GiB total capacity; 12.50 GiB already allocated;"
    " 0 bytes free; 14.00 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (NEW, MemoryReport(0, 96 * MIB, 80896 * MIB, 43253760, 78848 * MIB, 1280 * MIB)),
        (
            NEW.replace("total capacity", "total capacty"),
            MemoryReport(0, 96 * MIB, 80896 * MIB, 43253760, 78848 * MIB, 1280 * MIB),
        ),
        (OLD, MemoryReport(3, 2304 * MIB, 15872 * MIB, 0, 12800 * MIB, 1536 * MIB)),
        ("CUDA error: out of memory", MemoryReport()),
    ],
)
def test_the_message_is_read_in_all_its_forms(text, report):
    """Messages of PyTorch 1 and 2 are read, including the misspelling of version 2.1."""
    assert parse_report(text) == report


def test_another_process_is_distinguished_from_its_own():
    """PyTorch's own process is recognised by its memory, because its host PID is unknown."""
    text = (
        "GPU 1 has a total capacity of 48.00 GiB of which 9.75 GiB is free. Process 4021 has 21.50 GiB"
        " memory in use. Process 5177 has 16.25 GiB memory in use. Of the allocated memory 14.75 GiB is"
        " allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
    )
    assert parse_report(text).others == ((4021, 22016 * MIB),)


def test_all_named_processes_are_others_where_it_names_itself():
    """If the message contains `this process has`, every numbered process is another one."""
    text = NEW.replace("Including", "Process 88 has 0.50 GiB memory in use. Including")
    assert parse_report(text).others == ((88, 512 * MIB),)


@given(st.text(alphabet="0123456789. GMKiBbytes()Processhas;free", max_size=300))
def test_no_text_raises(text):
    """Arbitrary text is parsed without an error."""
    assert isinstance(parse_report("Tried to allocate " + text), MemoryReport)
