"""The rest of the machine on the live page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Filesystem, Host, Picture, Tone
from trainvitals.web.live import quantities as write
from trainvitals.web.live.drawing import bar, sparkline
from trainvitals.web.live.markup import chip, figure, more, name, section, text

MOST_FILESYSTEMS = 12


def write_host(picture: Picture) -> str:
    """Write the section."""
    host = picture.host
    up = "" if host.booted is None else f"up {write.duration(picture.time - host.booted)}"
    figures = "".join(_write_figures(host))
    shown = host.filesystems[:MOST_FILESYSTEMS]
    spaces = "".join(_write_filesystem(each) for each in shown)
    return section(
        "host",
        "Host",
        up,
        (
            f'<dl class="tiles">{figures}</dl>',
            f'<ul class="spaces">{spaces}</ul>' if spaces else "",
            more(len(host.filesystems) - len(shown), "file systems"),
        ),
    )


def judge_filesystem(each: Filesystem) -> tuple[str, Tone]:
    """Judge a file system by the limits of the alerts: what is wrong, empty for nothing, and its tone."""
    if each.trouble:
        return each.trouble, "bad"
    if each.size_bytes and each.avail_bytes is not None and not each.is_readonly:
        share = each.avail_bytes / each.size_bytes
        if share < LIMITS["host_disk_space_low:avail_ratio"]:
            return "nearly full", "warning"
    free = each.files_free_ratio
    if free is not None and free < LIMITS["host_inodes_low:free_ratio"]:
        return "inodes nearly used up", "warning"
    return "", "busy"


def share_of_memory(host: Host) -> float | None:
    """Give the share of RAM that is in use; None unknown."""
    if host.memory_available_bytes is None or not host.memory_total_bytes:
        return None
    return 1 - host.memory_available_bytes / host.memory_total_bytes


def _write_figures(host: Host) -> Iterator[str]:
    yield figure("CPU", _write_cpu(host), kind="wide")
    yield figure("memory", _write_memory(host), kind=f"wide {_judge_memory(host)}")
    disks = (host.disk_read_bytes_per_second, host.disk_written_bytes_per_second)
    yield figure("disks", _write_pair(disks, ("read", "written")))
    network = (host.received_bytes_per_second, host.transmitted_bytes_per_second)
    yield figure("network", _write_pair(network, ("in", "out")))
    if host.load:
        yield figure("load", " ".join(f"{value:.1f}" for value in host.load))
    waiting = "warning" if _waits(host) else ""
    yield figure("waiting for disks", write.percent(host.io_wait_ratio), kind=waiting)
    if host.swap_total_bytes:
        used = host.swap_total_bytes - (host.swap_free_bytes or 0)
        yield figure("swap", write.bytes_of(used, host.swap_total_bytes))
    if host.oom_kills is not None:
        recent = f"<small> {host.recent_oom_kills} of late</small>" if host.recent_oom_kills else ""
        kind = "bad" if host.recent_oom_kills else ""
        yield figure("OOM kills", f"{write.whole(host.oom_kills)}{recent}", kind=kind)


def _waits(host: Host) -> bool:
    return (host.io_wait_ratio or 0.0) > LIMITS["host_io_bottleneck:wait_ratio"]


def _write_cpu(host: Host) -> str:
    ratio = None if host.cpu_percent is None else host.cpu_percent / 100
    cores = f"<small> of {host.cores} cores</small>" if host.cores else ""
    drawn = sparkline(host.cpu_trace, "CPU", _percent, low=0.0, high=100.0)
    return f'<span class="value">{write.percent(ratio)}{cores}</span>{drawn}'


def _percent(value: float) -> str:
    return write.percent(value / 100)


def _write_memory(host: Host) -> str:
    total, available = host.memory_total_bytes, host.memory_available_bytes
    used = None if total is None or available is None else total - available
    drawn = sparkline(host.memory_trace, "memory", write.percent, low=0.0, high=1.0)
    return f'<span class="value">{write.bytes_of(used, total)}</span>{drawn}'


def _judge_memory(host: Host) -> Tone:
    share = share_of_memory(host)
    high = LIMITS["host_high_memory_usage:used_ratio"]
    return "warning" if share is not None and share > high else "good"


def _write_pair(values: Sequence[float | None], words: Sequence[str]) -> str:
    return " ".join(
        f"<span>{write.flow(value)}<small> {word}</small></span>"
        for value, word in zip(values, words, strict=True)
    )


def _write_filesystem(each: Filesystem) -> str:
    words, tone = judge_filesystem(each)
    where = f"{name(each.mountpoint)}<small> {text(each.fstype)}</small>"
    state = chip(words, tone) if words else ""
    if each.size_bytes is None:
        return f"<li><p>{where} {state or chip('not readable', 'unknown')}</p></li>"
    used = each.size_bytes - (each.avail_bytes or 0)
    share = used / each.size_bytes if each.size_bytes else 0.0
    readonly = "<small> read-only</small>" if each.is_readonly else ""
    return (
        f"<li><p>{where}{readonly}{state}</p><p>{write.size(each.avail_bytes)}<small> free of "
        f"{write.size(each.size_bytes)}</small></p>{bar(share, f'{each.mountpoint} used', tone=tone)}</li>"
    )
