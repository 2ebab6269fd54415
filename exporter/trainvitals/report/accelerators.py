"""The accelerators of a period: how busy and hot they were, what they held and used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from trainvitals.report.archive import Archive, count_seconds, find_extreme, write_rise
from trainvitals.report.hardware import Accelerators, Heat
from trainvitals.report.points import Points
from trainvitals.report.promapi import Series
from trainvitals.report.waste import find_uses

_BY = "job, instance, kind, device, uuid"
_CORE = 'accelerator_temperature_celsius{@host, sensor="core"}'


def find_accelerators(archive: Archive) -> Accelerators:
    """Ask for all that is told of accelerators; `count` is 0 where there were none."""
    there = archive.ask_hours(
        "how long accelerators were there",
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
    peak = archive.ask_hours(
        "the most device memory that was used", f"max_over_time(({used})[@hour:@step])"
    )
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
        "the energy of accelerators that count none",
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
    """Give the mean power of all together, over the moments at which some is told."""
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
    """Put the values of each moment together, the oldest first."""
    values: dict[float, list[float]] = {}
    for each in series:
        for moment, value in each.points:
            if math.isfinite(value):
                values.setdefault(moment, []).append(value)
    return tuple((moment, join(values[moment])) for moment in sorted(values))


def _take_one(series: tuple[Series, ...]) -> float | None:
    return series[0].last if series and math.isfinite(series[0].last) else None
