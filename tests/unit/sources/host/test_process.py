"""Tests for the exporter's readings of its own resource usage."""

from __future__ import annotations

import os
import resource
import subprocess

import psutil
import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.process import ProcessSource


def test_the_fake_exporter_and_its_reader_are_added_up(roots: Roots):
    """CPU time, memory, descriptors and threads include a child process, unlike the start time."""
    reading = ProcessSource(
        procfs=roots.procfs, children=lambda: (4300,), ticks_per_second=100, page_bytes=4096
    ).read()
    assert reading.cpu_seconds == 22.0
    assert reading.resident_bytes == 32_768_000
    assert reading.virtual_bytes == 157_286_400
    assert reading.start_time_seconds == 1_700_003_600.0
    assert reading.open_fds == 5
    assert reading.threads == 7
    assert reading.max_fds == 2 * resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_child_that_vanished_is_skipped(roots: Roots):
    """A child process that does not exist is skipped."""
    reading = ProcessSource(
        procfs=roots.procfs, children=lambda: (4301,), ticks_per_second=100
    ).read()
    assert reading.cpu_seconds == 18.0
    assert reading.threads == 5


def test_cpu_time_does_not_go_back_when_a_child_is_replaced(roots: Roots):
    """The CPU time of an ended child stays counted, even if its successor has the same PID."""
    stat = roots.procfs / "4300/stat"
    text = stat.read_text()
    children = [4300]
    source = ProcessSource(
        procfs=roots.procfs, children=lambda: children, ticks_per_second=100, page_bytes=4096
    )
    assert source.read().cpu_seconds == 22.0
    stat.write_text(text.replace(" 300 100 ", " 5 5 ").replace(" 360100 ", " 999000 "))
    assert source.read().cpu_seconds == 22.1
    children.clear()
    assert source.read().cpu_seconds == 22.1
    assert source.read().cpu_seconds == 22.1


def test_a_system_that_does_not_say_when_it_booted_has_no_start_time(roots: Roots):
    """Without a boot time the start time is unknown, and the other values are read."""
    (roots.procfs / "stat").unlink()
    reading = ProcessSource(procfs=roots.procfs).read()
    assert reading.start_time_seconds is None
    assert reading.threads == 5


def test_a_stat_of_another_kind_is_an_error(roots: Roots):
    """If `/proc/self/stat` is invalid, the error names the file."""
    (roots.procfs / "self/stat").write_text("1 (short) S 1 2\n")
    with pytest.raises(SourceError, match="self/stat"):
        ProcessSource(procfs=roots.procfs).read()


def test_this_process_agrees_with_psutil():
    """The threads, descriptors, start time, CPU time and memory agree with those of psutil."""
    source = ProcessSource()
    source.read()
    theirs = psutil.Process()
    reading = source.read()
    assert reading.threads == theirs.num_threads()
    # psutil counts the descriptor that lists the others.
    assert reading.open_fds in {theirs.num_fds(), theirs.num_fds() - 1}
    assert reading.start_time_seconds == pytest.approx(theirs.create_time(), abs=1)
    assert reading.cpu_seconds == pytest.approx(sum(theirs.cpu_times()[:2]), abs=0.5)
    assert reading.resident_bytes == pytest.approx(theirs.memory_info().rss, rel=0.2)
    source.close()


def test_open_descriptors_are_counted_exactly():
    """Opening one more file increases the number of open descriptors by exactly one."""
    source = ProcessSource()
    source.read()
    before = source.read().open_fds
    descriptor = os.open("/dev/null", os.O_RDONLY)
    after = source.read().open_fds
    os.close(descriptor)
    assert before is not None
    assert after == before + 1
    source.close()


def test_a_real_child_comes_and_goes():
    """The threads and the memory of a child process count only while the child is alive."""
    children: list[int] = []
    source = ProcessSource(children=lambda: children)
    alone = source.read()
    with subprocess.Popen(["sleep", "60"]) as child:
        children.append(child.pid)
        together = source.read()
        child.kill()
        child.wait()
    assert together.threads == alone.threads + 1
    assert together.virtual_bytes > alone.virtual_bytes
    assert source.read().threads == alone.threads
    source.close()
