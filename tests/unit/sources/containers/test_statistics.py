"""Tests for parsing the engine's statistics, in the formats of control groups version 1 and 2."""

from __future__ import annotations

import pytest

from trainvitals.sources.containers.reading import Usage
from trainvitals.sources.containers.statistics import parse_statistics

VERSION_1 = {
    "read": "2026-11-21T22:20:01.215398599Z",
    "preread": "0001-01-01T00:00:00Z",
    "pids_stats": {"current": 1},
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"major": 254, "minor": 0, "op": "Read", "value": 4096},
            {"major": 254, "minor": 0, "op": "Write", "value": 512},
            {"major": 254, "minor": 16, "op": "Read", "value": 1024},
            {"major": 254, "minor": 0, "op": "Total", "value": 5632},
        ],
        "io_serviced_recursive": [],
    },
    "cpu_stats": {
        "cpu_usage": {"total_usage": 30473119, "percpu_usage": [20316014, 10157105]},
        "online_cpus": 2,
        "throttling_data": {"periods": 9, "throttled_periods": 2, "throttled_time": 1500000000},
    },
    "memory_stats": {
        "usage": 327680,
        "max_usage": 4341760,
        "stats": {
            "cache": 16384,
            "rss": 53248,
            "total_active_anon": 4096,
            "total_inactive_anon": 49152,
            "total_inactive_file": 12288,
            "total_rss": 53248,
            "total_unevictable": 0,
        },
        "limit": 25199288320,
    },
    "name": "/train",
    "networks": {
        "eth0": {"rx_bytes": 1188, "tx_bytes": 40},
        "eth1": {"rx_bytes": 12, "tx_bytes": 2},
    },
}
VERSION_2 = {
    "read": "2026-11-21T22:20:01Z",
    "pids_stats": {"current": 7, "limit": 18446744073709551615},
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"major": 254, "minor": 0, "op": "read", "value": 643072},
            {"major": 254, "minor": 0, "op": "write", "value": 19902464},
        ],
        "io_serviced_recursive": None,
    },
    "cpu_stats": {"cpu_usage": {"total_usage": 1788880000}, "throttling_data": {}},
    "memory_stats": {
        "usage": 25907200,
        "stats": {
            "anon": 4849664,
            "file": 20000768,
            "inactive_file": 20000768,
            "shmem": 100,
            "slab_unreclaimable": 20,
            "unevictable": 3,
        },
        "failcnt": 3,
        "limit": 67108864,
    },
}


def test_statistics_of_version_1():
    """On version 1, operations are capitalized, and the anonymous lists are not reclaimable."""
    assert parse_statistics(VERSION_1) == Usage(
        time=1795299601.215398599,
        cgroup_version=0,
        memory_usage_bytes=327680,
        memory_working_set_bytes=315392,
        memory_unreclaimable_bytes=53248,
        memory_peak_bytes=4341760,
        cpu_seconds=0.030473119,
        cpu_throttled_seconds=1.5,
        processes=1,
        processes_limit=0,
        read_bytes=5120,
        written_bytes=512,
        received_bytes=1200,
        transmitted_bytes=42,
    )


def test_statistics_of_version_2():
    """On version 2, there is no peak, and the largest 64-bit number means no process limit."""
    assert parse_statistics(VERSION_2) == Usage(
        time=1795299601.0,
        cgroup_version=0,
        memory_usage_bytes=25907200,
        memory_working_set_bytes=5906432,
        memory_unreclaimable_bytes=4849787,
        cpu_seconds=1.78888,
        processes=7,
        processes_limit=0,
        read_bytes=643072,
        written_bytes=19902464,
    )


def test_a_limit_of_processes_is_one():
    """A limit on the number of processes is read as it is set."""
    usage = parse_statistics({**VERSION_1, "pids_stats": {"current": 1, "limit": 100}})
    assert usage is not None
    assert usage.processes_limit == 100


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"read": "0001-01-01T00:00:00Z", "pids_stats": {}, "memory_stats": {}, "cpu_stats": {}},
        {"read": "2026-11-21T22:20:01Z", "memory_stats": {}, "cpu_stats": {"cpu_usage": None}},
    ],
)
def test_what_does_not_run_uses_nothing(document: dict[str, object]):
    """The statistics that Docker returns for a stopped container yield no usage."""
    assert parse_statistics(document) is None
