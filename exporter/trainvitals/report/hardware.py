"""Figures about accelerators and machines: utilization, memory, energy, heat and disks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from trainvitals.report.archive import Archive, count_seconds, find_extreme, write_rise
from trainvitals.report.figures import Accelerators, Coverage, Disk, Heat, Hosts
from trainvitals.report.period import Period
from trainvitals.report.waste import find_uses
from trainvitals.sources.prometheus import Points, Series

_MOST_DISKS = 20
_ANY = '{__name__=~"memory_total_bytes|accelerator_up|training_run_info|ALERTS", @host}'
_BY = "job, instance, kind, device, uuid"
_CORE = 'accelerator_temperature_celsius{@host, sensor="core"}'


def find_accelerators(archive: Archive) -> Accelerators:
    """Return figures about the accelerators; `count` is 0 if no accelerator was observed."""
    there = archive.ask_hours(
        "how long accelerators were seen",
        f"{archive.step_seconds} * count_over_time((group by ({_BY})"
        " (accelerator_up{@host}))[@hour:@step])",
    )
    if not there:
        return Accelerators()
    found = Accelerators(
        count=len({each.labels.get("uuid", "") for each in there}), seconds=count_seconds(there)
    )
    found = _add_busy(archive, found, there)
    found = _add_memory(archive, found)
    found = _add_energy(archive, found)
    found = _add_heat(archive, found)
    return replace(found, uses=find_uses(archive))


def _add_busy(archive: Archive, found: Accelerators, there: Iterable[Series]) -> Accelerators:
    counted = _gain("accelerator_busy_seconds_total{@host}")
    shown = f"{archive.step_seconds} * sum_over_time(accelerator_utilization_ratio{{@host}}[@hour:@step])"
    busy = archive.ask_hours("how busy accelerators were", f"sum ({counted} or {shown})")
    if not busy:
        return found
    seconds = dict(_add_up(there))
    shares = tuple(
        (time, min(value / seconds[time], 1.0))
        for time, value in _add_up(busy)
        if seconds.get(time)
    )
    return replace(found, busy_seconds=count_seconds(busy), busy_by_hour=shares)


def _add_memory(archive: Archive, found: Accelerators) -> Accelerators:
    used = "sum(accelerator_memory_used_bytes{@host})"
    peak = archive.ask_hours("the peak of device memory", f"max_over_time(({used})[@hour:@step])")
    highest = [each[1] for one in peak if (each := find_extreme(one, is_highest=True))]
    return replace(
        found,
        memory_used_bytes=_take_one(archive.ask_end("device memory in use", used)),
        memory_total_bytes=_take_one(
            archive.ask_end("device memory", "sum(accelerator_memory_total_bytes{@host})")
        ),
        memory_peak_bytes=max(highest, default=None),
    )


def _add_energy(archive: Archive, found: Accelerators) -> Accelerators:
    counted = _gain("accelerator_energy_joules_total{@host}")
    drawn = f"{archive.step_seconds} * sum_over_time(accelerator_power_watts{{@host}}[@hour:@step])"
    gaps = len(archive.gaps)
    known = archive.ask_hours("the energy of accelerators", f"sum({counted})")
    estimated = archive.ask_hours(
        "the energy of accelerators without a counter",
        f"sum({drawn} unless on (job, instance, uuid) {counted})",
    )
    points = _add_up((*known, *estimated))
    if not points or len(archive.gaps) > gaps:
        return found
    joules = math.fsum(value for _, value in points)
    return replace(
        found,
        energy_joules=joules,
        is_energy_estimated=bool(estimated),
        joules_by_hour=points,
        power_watts=_find_power(archive),
    )


def _gain(counter: str) -> str:
    return f"sum_over_time({write_rise(counter)}[@hour:@step])"


def _find_power(archive: Archive) -> float | None:
    """Return the mean of the total power, in watts; None if the power is unknown at all steps."""
    drawn = "sum(accelerator_power_watts{@host})"
    sums = archive.ask_hours("power", f"sum_over_time(({drawn})[@hour:@step])")
    counts = archive.ask_hours("power", f"count_over_time(({drawn})[@hour:@step])")
    moments = count_seconds(counts)
    return count_seconds(sums) / moments if moments else None


def _add_heat(archive: Archive, found: Accelerators) -> Accelerators:
    now = archive.ask_end("temperature", f"max({_CORE})")
    hours = archive.ask_hours(
        "the highest temperature",
        f"topk(1, max by (instance, kind, device) (max_over_time({_CORE}[@hour])))",
    )
    hottest = None
    for one in hours:
        highest = find_extreme(one, is_highest=True)
        if highest is not None and (hottest is None or highest[1] > hottest.celsius):
            device = f"{one.labels.get('kind', '')} {one.labels.get('device', '')}".strip()
            hottest = Heat(one.labels.get("instance", ""), device, highest[1], highest[0])
    return replace(
        found, celsius=_take_one(now), hottest=hottest, celsius_by_hour=_add_up(hours, max)
    )


def _add_up(series: Iterable[Series], join: Callable[[list[float]], float] = math.fsum) -> Points:
    """Join the values of all series at each time; return one point per time, oldest first."""
    values: dict[float, list[float]] = {}
    for each in series:
        for moment, value in each.points:
            values.setdefault(moment, []).append(value)
    return tuple((moment, join(values[moment])) for moment in sorted(values))


def _take_one(series: tuple[Series, ...]) -> float | None:
    return series[0].last if series else None


def find_coverage(archive: Archive) -> Coverage | None:
    """Return the part of the period that has data; None if no part of it has data."""
    found = archive.ask_moments("when there was data", f"count({_ANY}) > 0")
    if not found or not found[0].points:
        return None
    step = archive.step_seconds
    moments = [moment for moment, _ in found[0].points]
    return Coverage(
        first=moments[0] - step,
        last=moments[-1],
        seconds=len(moments) * step,
        holes=_find_holes(moments, archive.period, step),
    )


def _find_holes(moments: list[float], period: Period, step: int) -> tuple[tuple[float, float], ...]:
    """Return the intervals without data, except intervals in which only one step is missing."""
    ends = [*moments, period.end + step]
    begins = [period.begin, *moments]
    return tuple(
        (begin, end - step)
        for begin, end in zip(begins, ends, strict=True)
        if end - begin > 2 * step
    )


def find_hosts(archive: Archive) -> Hosts:
    """Return figures about the machines that were observed in the period."""
    seen = archive.ask_hours(
        "the machines", f"group by (instance, environment, env) (last_over_time({_ANY}[@hour]))"
    )
    # A machine that does not report its available memory must not count as a machine with full
    # memory.
    total = "sum(memory_total_bytes{@host} and on (job, instance) memory_available_bytes{@host})"
    available = "sum(memory_available_bytes{@host})"
    all_bytes = archive.ask_end("memory", total)
    free_bytes = archive.ask_end("memory", available)
    size = all_bytes[0].last if all_bytes else None
    used = size - free_bytes[0].last if size is not None and free_bytes else None
    ratio, instance = _find_fullest(archive)
    environments = {each.labels.get("environment") or each.labels.get("env") for each in seen}
    return Hosts(
        names=tuple(sorted({each.labels.get("instance", "") for each in seen} - {""})),
        environments=tuple(sorted(each for each in environments if each)),
        memory_used_bytes=used,
        memory_total_bytes=size,
        memory_peak_ratio=ratio,
        memory_peak_instance=instance,
        disks=_find_disks(archive),
    )


def _find_fullest(archive: Archive) -> tuple[float | None, str]:
    used = "1 - memory_available_bytes{@host} / memory_total_bytes{@host}"
    hours = archive.ask_hours(
        "the peak of memory",
        f"topk(1, max by (instance) (max_over_time(({used})[@hour:@step])))",
    )
    found: tuple[float | None, str] = (None, "")
    for one in hours:
        highest = find_extreme(one, is_highest=True)
        if highest is not None and (found[0] is None or highest[1] > found[0]):
            found = highest[1], one.labels.get("instance", "")
    return found


def _find_disks(archive: Archive) -> tuple[Disk, ...]:
    by = "instance, mountpoint"
    # Small file systems, such as /boot, are expected to be full.
    smallest = archive.thresholds["host_disk_space_low:small_size_bytes"]
    size = (
        f'max by ({by}) (host_filesystem_size_bytes{{@host, mountpoint!="/dev/shm"}}'
        f" >= {smallest:g} unless on (job, instance, mountpoint)"
        " host_filesystem_readonly{@host} == 1)"
    )
    free = f"max by ({by}) (host_filesystem_avail_bytes{{@host}}) and on ({by}) {size}"
    fullest = f"bottomk({_MOST_DISKS}, {free} / on ({by}) {size})"
    sizes = archive.ask_end("disk space", f"{size} and on ({by}) {fullest}")
    rest = archive.ask_end("disk space", f"({free}) and on ({by}) {fullest}")
    sized = {
        (each.labels["instance"], each.labels["mountpoint"]): each.last
        for each in sizes
        if each.last > 0
    }
    disks = [
        Disk(key[0], key[1], each.last, sized[key])
        for each in rest
        if (key := (each.labels["instance"], each.labels["mountpoint"])) in sized
    ]
    return tuple(sorted(disks, key=lambda disk: disk.avail_bytes / disk.size_bytes))
