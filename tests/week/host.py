"""What the exporter serves about the machine itself, and Prometheus about its scrapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from tests.week.series import Page

COLLECTORS = (
    "cpu",
    "memory",
    "filesystem",
    "disk",
    "network",
    "pressure",
    "kernel",
    "process",
    "training",
    "accelerator",
)
_CHUNK_MINUTES = 15


@dataclass(frozen=True, slots=True)
class Spell:
    """Some minutes in which the machine is busy with something.

    Attributes:
        start: From which minute.
        end: Until which.
        io_some: Share of the time in which some task waits for I/O.
        io_full: Share in which every task does.
        io_wait: Share of CPU time idle with I/O outstanding.
        cpu_percent: CPU time in use.
        cached: Share of memory that caches files.
        used: Share of memory in use, which no cache could give back.
        disk_bytes: Read and written a second.
    """

    start: int
    end: int
    io_some: float = 0.02
    io_full: float = 0.01
    io_wait: float = 0.01
    cpu_percent: float = 8.0
    cached: float = 0.3
    used: float = 0.15
    disk_bytes: float = 1e6


@dataclass(frozen=True, slots=True)
class Filling:
    """How a file system fills and is cleaned.

    Attributes:
        mountpoint: Where it is.
        size_bytes: Its size.
        levels: Minute and share that is available then, in order; straight lines between them.
    """

    mountpoint: str
    size_bytes: float
    levels: Sequence[tuple[int, float]]


def write_host(
    page: Page,
    *,
    minutes: int,
    memory_gib: int,
    spells: Sequence[Spell],
    fillings: Sequence[Filling],
    boots: Sequence[int],
    clock_offset_seconds: float,
) -> None:
    """Write the series of a machine.

    Args:
        page: Where to.
        minutes: How long.
        memory_gib: Its memory.
        spells: What it is busy with, in order; between them it is as usual.
        fillings: Its file systems.
        boots: Minutes in which it booted, the first before the beginning.
        clock_offset_seconds: How far its clock is ahead.
    """
    cursor, kept = 0, []
    for spell in spells:
        kept += [Spell(cursor, spell.start), spell]
        cursor = spell.end
    kept.append(Spell(cursor, minutes))
    random = Random(page.instance)
    for spell in kept:
        for start in range(spell.start, spell.end, _CHUNK_MINUTES):
            end = min(spell.end, start + _CHUNK_MINUTES)
            _write_busy(page, spell, start, end, memory_gib, random)
    for filling in fillings:
        _write_filesystem(page, filling, minutes)
    for number, boot in enumerate(boots):
        until = boots[number + 1] if number + 1 < len(boots) else minutes
        start = max(0, boot)
        page.hold("host_boot_time_seconds", start, until, boot * 60 + 45)
        page.hold("process_start_time_seconds", start, until, boot * 60 + 70)
    _write_what_stays(page, minutes, clock_offset_seconds)
    _write_scrapes(page, minutes)


def _write_busy(
    page: Page, spell: Spell, start: int, end: int, memory_gib: int, random: Random
) -> None:
    total, noise = memory_gib * 2**30, random.uniform(0.9, 1.1)
    used = total * spell.used * noise
    for name, value in (
        ("cpu_utilization_percent", min(100, spell.cpu_percent * noise)),
        ("host_io_wait_ratio", min(1, spell.io_wait * noise)),
        ("host_load1", spell.cpu_percent * noise),
        ("host_load5", spell.cpu_percent),
        ("memory_usage_bytes", int(used)),
        ("memory_total_bytes", total),
        ("memory_available_bytes", int(total - used)),
        ("memory_cached_bytes", int(total * min(spell.cached, 0.97 - spell.used))),
        ("memory_free_bytes", int(total * max(0.01, 0.97 - spell.used - spell.cached))),
    ):
        page.hold(name, start, end, value)
    for resource, level, share in (
        ("io", "some", spell.io_some),
        ("io", "full", spell.io_full),
        ("memory", "some", 0.001),
        ("memory", "full", 0.0005),
        ("cpu", "some", spell.cpu_percent / 400),
    ):
        name, labels = "host_pressure_stalled_seconds_total", {"resource": resource, "level": level}
        page.count(name, start, end, 60 * min(1, share * noise), **labels)
    page.count("host_disk_io_seconds_total", start, end, 60 * spell.io_some, device="nvme0n1")
    for direction in ("read", "write"):
        per_minute = 60 * spell.disk_bytes * noise
        page.count("disk_io_bytes", start, end, per_minute, direction=direction)


def _write_filesystem(page: Page, filling: Filling, minutes: int) -> None:
    mountpoint, size = filling.mountpoint, filling.size_bytes
    levels = [*filling.levels, (minutes, filling.levels[-1][1])]
    for (start, share), (end, following) in pairwise(levels):
        stop = min(end, minutes)
        slope = (following - share) / (end - start) if end > start else 0.0
        name = "host_filesystem_avail_bytes"
        page.climb(name, start, stop, share * size, slope * size, mountpoint=mountpoint)
    for name, value in (
        ("host_filesystem_size_bytes", size),
        ("host_filesystem_files", 5e7),
        ("host_filesystem_files_free", 4.6e7),
        ("host_filesystem_readonly", 0),
    ):
        page.hold(name, 0, minutes, value, mountpoint=mountpoint)


def _write_what_stays(page: Page, minutes: int, clock_offset_seconds: float) -> None:
    page.climb("host_time_seconds", 0, minutes, clock_offset_seconds, 60)
    page.hold("host_filesystem_responding", 0, minutes, 1, mountpoint="/datasets")
    for name, value in (
        ("host_cpu_cores", 64),
        ("host_clock_offset_seconds", -clock_offset_seconds),
        ("host_clock_synchronized", 1),
        ("host_swap_total_bytes", 8 * 2**30),
        ("host_swap_used_bytes", 2**28),
        ("host_oom_kills_total", 0),
        ("process_open_fds", 32),
        ("process_max_fds", 1024),
        ("process_resident_memory_bytes", 34e6),
        ("training_client_incompatible_files", 0),
    ):
        labels = {"kind": "logical"} if name == "host_cpu_cores" else {}
        page.hold(name, 0, minutes, value, **labels)
    for direction in ("in", "out"):
        page.count(f"host_swap_{direction}_bytes_total", 0, minutes, 40_000)
    for device, is_up in (("eth0", 1), ("eth1", 0)):
        page.hold("host_network_up", 0, minutes, is_up, device=device)
        for direction in ("receive", "transmit"):
            labels = {"device": device, "direction": direction}
            page.count("host_network_packets_total", 0, minutes, 60_000 * is_up, **labels)
            page.count("host_network_bytes_total", 0, minutes, 6e7 * is_up, **labels)
            page.count("host_network_errors_total", 0, minutes, 0.01 * is_up, **labels)
            page.count("host_network_dropped_total", 0, minutes, 3 * is_up, **labels)


def write_stack(page: Page, minutes: int) -> None:
    """Write what Prometheus and Alertmanager, which run on one of the machines, say of themselves."""
    for job in ("prometheus", "alertmanager"):
        page.hold("up", 0, minutes, 1, job=job)
        page.hold(f"{job}_config_last_reload_successful", 0, minutes, 1, job=job)
    at_prometheus = {"job": "prometheus"}
    page.hold("prometheus_notifications_alertmanagers_discovered", 0, minutes, 1, **at_prometheus)
    for name in (
        "prometheus_rule_evaluation_failures_total",
        "prometheus_notifications_dropped_total",
    ):
        page.hold(name, 0, minutes, 0, **at_prometheus)
    for integration in ("slack", "pagerduty"):
        labels = {"job": "alertmanager", "integration": integration}
        page.count("alertmanager_notifications_total", 0, minutes, 0.01, **labels)
        for reason in ("clientError", "serverError", "other"):
            name = "alertmanager_notifications_failed_total"
            page.hold(name, 0, minutes, 0, **labels, reason=reason)


def _write_scrapes(page: Page, minutes: int) -> None:
    for collector in COLLECTORS:
        name = "trainvitals_collector_last_success_timestamp_seconds"
        page.climb(name, 0, minutes, -0.5, 60, collector=collector)
        for name, value in (
            ("trainvitals_collector_success", 1),
            ("trainvitals_collector_duration_seconds", 0.002),
            ("trainvitals_collector_timeouts_total", 0),
            ("trainvitals_collector_omitted_labels", 0),
        ):
            page.hold(name, 0, minutes, value, collector=collector)
    page.hold("trainvitals_build_info", 0, minutes, 1, version="0.1.0", python="3.11")
    page.hold("scrape_duration_seconds", 0, minutes, 0.006)
    page.hold("scrape_samples_scraped", 0, minutes, 1400)
    page.hold("scrape_samples_post_metric_relabeling", 0, minutes, 1400)
    cursor = 0
    for start, end in page.away:
        page.hold("up", cursor, start, 1)
        page.hold("up", start, end, 0)
        cursor = end
    page.hold("up", cursor, minutes, 1)
