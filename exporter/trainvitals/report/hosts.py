"""The machines of a period: memory and disks; and for which part of it there are figures at all."""

from __future__ import annotations

import math

from trainvitals.report.archive import Archive, find_extreme
from trainvitals.report.figures import Coverage
from trainvitals.report.hardware import Disk, Hosts
from trainvitals.report.period import Period

_MOST_DISKS = 20
# As the alerts have it: the small ones are for booting.
_SMALLEST_DISK_BYTES = "5e9"
_ANY = '{__name__=~"memory_total_bytes|accelerator_up|training_run_info|ALERTS", @host}'


def find_coverage(archive: Archive) -> Coverage | None:
    """Find out when there were figures; None where there never were."""
    told = archive.ask_moments("when there were figures", f"count({_ANY}) > 0")
    if not told or not told[0].points:
        return None
    step = archive.step_seconds
    moments = [moment for moment, _ in told[0].points]
    return Coverage(
        first=moments[0] - step,
        last=moments[-1],
        seconds=len(moments) * step,
        holes=_find_holes(moments, archive.period, step),
    )


def _find_holes(moments: list[float], period: Period, step: int) -> tuple[tuple[float, float], ...]:
    """Give the times without figures; one moment that is missing is none."""
    ends = [*moments, period.end + step]
    begins = [period.begin, *moments]
    return tuple(
        (begin, end - step)
        for begin, end in zip(begins, ends, strict=True)
        if end - begin > 2 * step
    )


def find_hosts(archive: Archive) -> Hosts:
    """Ask for all that is told of machines."""
    seen = archive.ask_hours(
        "the machines", f"group by (instance, environment, env) (last_over_time({_ANY}[@hour]))"
    )
    total = "sum(memory_total_bytes{@host})"
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
        "the most memory that was used",
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
    size = (
        f'max by ({by}) (host_filesystem_size_bytes{{@host, mountpoint!="/dev/shm"}}'
        f" >= {_SMALLEST_DISK_BYTES} unless on (job, instance, mountpoint)"
        " host_filesystem_readonly{@host} == 1)"
    )
    free = f"max by ({by}) (host_filesystem_avail_bytes{{@host}}) and on ({by}) {size}"
    fullest = f"bottomk({_MOST_DISKS}, {free} / on ({by}) {size})"
    sizes = archive.ask_end("disk space", f"{size} and on ({by}) {fullest}")
    rest = archive.ask_end("disk space", f"({free}) and on ({by}) {fullest}")
    sized = {(each.labels["instance"], each.labels["mountpoint"]): each.last for each in sizes}
    disks = [
        Disk(key[0], key[1], each.last, sized[key])
        for each in rest
        if (key := (each.labels["instance"], each.labels["mountpoint"])) in sized
    ]
    return tuple(
        sorted(
            (disk for disk in disks if math.isfinite(disk.avail_bytes)),
            key=lambda disk: disk.avail_bytes / disk.size_bytes,
        )
    )
