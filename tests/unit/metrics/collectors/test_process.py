"""Tests for the process collector."""

from __future__ import annotations

import resource

from trainvitals.metrics.collectors.process import ProcessCollector
from trainvitals.sources.files import Roots


def test_the_fake_exporter_has_these_samples(roots: Roots, samples):
    """CPU time, memory, threads and file descriptors are summed over the exporter and its child."""
    collector = ProcessCollector(procfs=roots.procfs, children=lambda: (4300,))
    reading = collector.read(0.0)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert samples(collector.express(reading)) == {
        "process_cpu_seconds_total": 22.0,
        "process_resident_memory_bytes": 32_768_000,
        "process_virtual_memory_bytes": 157_286_400,
        "process_start_time_seconds": 1_700_003_600.0,
        "process_open_fds": 5,
        "process_max_fds": 2 * limit,
        "process_threads": 7,
    }
    assert collector.complaint(reading) is None
    assert collector.omitted(reading) == 0
    collector.close()


def test_a_file_that_is_not_in_force_is_a_complaint():
    """A complaint about the web configuration is returned as the complaint of the collector."""
    collector = ProcessCollector(complain=lambda: "web.yml: the file is empty")
    assert collector.complaint(collector.read(0.0)) == "web.yml: the file is empty"
    collector.close()


def test_this_process_has_all_seven(samples):
    """All seven metrics are read from the real `/proc`."""
    collector = ProcessCollector()
    assert len(samples(collector.express(collector.read(0.0)))) == 7
    collector.close()
