"""The machine without its accelerators: CPU, memory, kills for memory, disks, network."""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.overview.limits import LIMITS
from trainvitals.overview.picture import Filesystem, Host, Picture
from trainvitals.top.flow import Flow, Gauge
from trainvitals.top.words import make_harmless, write_percent, write_size, write_use

_MEMORY_RATIO, _WARNING_RATIO = LIMITS["host_high_memory_usage:used_ratio"], 0.8
_DISK_RATIO, _DISK_WARNING_RATIO = 1 - LIMITS["host_disk_space_low:avail_ratio"], 0.8
_FEW_INODES_RATIO = LIMITS["host_inodes_low:free_ratio"]
_WAIT_RATIO = LIMITS["host_io_bottleneck:wait_ratio"]
_BAD = "bold red"


def show_host(picture: Picture, *, lists_all: bool) -> Flow:
    """Make the section.

    Args:
        picture: The picture.
        lists_all: It has the screen for itself.
    """
    gauges = list(_gauge(picture.host))
    always = 2  # CPU and memory stay in front of what is wrong
    rest = sorted(gauges[always:], key=lambda gauge: gauge.style != _BAD)
    return Flow(5, "HOST", (*gauges[:always], *rest), is_wide=lists_all)


def disk_ratio(one: Filesystem) -> float | None:
    """Give how much of a file system is taken."""
    if not one.size_bytes or one.avail_bytes is None:
        return None
    return 1 - one.avail_bytes / one.size_bytes


def memory_ratio(host: Host) -> float | None:
    """Give how much of the RAM is in use."""
    if not host.memory_total_bytes or host.memory_available_bytes is None:
        return None
    return 1 - host.memory_available_bytes / host.memory_total_bytes


def is_disk_full(one: Filesystem) -> bool:
    """Tell whether a person should look at it."""
    ratio = 0.0 if one.is_readonly else disk_ratio(one)
    return bool(one.trouble) or (ratio is not None and ratio >= _DISK_RATIO) or lacks_inodes(one)


def lacks_inodes(one: Filesystem) -> bool:
    """Tell whether it can soon take no more files."""
    return one.files_free_ratio is not None and one.files_free_ratio < _FEW_INODES_RATIO


def is_memory_full(host: Host) -> bool:
    """Tell whether hardly any memory is left."""
    ratio = memory_ratio(host)
    return ratio is not None and ratio >= _MEMORY_RATIO


def _gauge(host: Host) -> Iterator[Gauge]:
    if host.cpu_percent is not None:
        cores = "" if host.cores is None else f" of {host.cores} cores"
        yield Gauge("cpu", f"{host.cpu_percent:.0f}%{cores}", host.cpu_percent / 100)
    memory = memory_ratio(host)
    if memory is not None and host.memory_total_bytes is not None:
        words = write_use(memory * host.memory_total_bytes, host.memory_total_bytes)
        yield Gauge("memory", words, memory, _rate(memory, _WARNING_RATIO, _MEMORY_RATIO))
    if host.oom_kills is not None:
        lately = f", {host.recent_oom_kills} in 15 min" if host.recent_oom_kills else ""
        style = _BAD if host.recent_oom_kills else "green"
        yield Gauge("OOM kills", f"{host.oom_kills} since boot{lately}", style=style)
    for one in host.filesystems:
        yield _gauge_disk(one)
        if lacks_inodes(one):
            words = f"{write_percent(one.files_free_ratio)} free"
            yield Gauge(f"{make_harmless(one.mountpoint)} inodes", words, style=_BAD)
    yield from _gauge_the_rest(host)


def _gauge_disk(one: Filesystem) -> Gauge:
    name = make_harmless(one.mountpoint)
    ratio = disk_ratio(one)
    if one.trouble or ratio is None or one.avail_bytes is None:
        return Gauge(name, make_harmless(one.trouble) or "-", style=_BAD)
    ending = " ro" if one.is_readonly else " free"
    words = f"{write_percent(ratio)} {write_size(one.avail_bytes)}{ending}"
    style = "green" if one.is_readonly else _rate(ratio, _DISK_WARNING_RATIO, _DISK_RATIO)
    return Gauge(name, words, ratio, style)


def _gauge_the_rest(host: Host) -> Iterator[Gauge]:
    if host.swap_total_bytes and host.swap_free_bytes is not None:
        used = host.swap_total_bytes - host.swap_free_bytes
        ratio = used / host.swap_total_bytes
        words = write_use(used, host.swap_total_bytes)
        yield Gauge("swap", words, ratio, _rate(ratio, _WARNING_RATIO, _MEMORY_RATIO))
    if host.load:
        yield Gauge("load", " ".join(f"{value:.2f}" for value in host.load))
    if host.io_wait_ratio is not None:
        style = "yellow" if host.io_wait_ratio >= _WAIT_RATIO else "green"
        yield Gauge("I/O wait", write_percent(host.io_wait_ratio), host.io_wait_ratio, style)
    yield from _gauge_pair(
        "disk /s",
        host.disk_read_bytes_per_second,
        host.disk_written_bytes_per_second,
        ("r", "w"),
    )
    yield from _gauge_pair(
        "net /s", host.received_bytes_per_second, host.transmitted_bytes_per_second, ("in", "out")
    )
    if any(host.cpu_trace):
        yield Gauge("cpu 15min", "", trace=host.cpu_trace, full=100.0)
    if any(host.memory_trace):
        yield Gauge("mem 15min", "", trace=host.memory_trace)


def _gauge_pair(
    label: str, first: float | None, second: float | None, names: tuple[str, str]
) -> Iterator[Gauge]:
    if first is not None or second is not None:
        words = f"{write_size(first)} {names[0]}, {write_size(second)} {names[1]}"
        yield Gauge(label, words)


def _rate(ratio: float, warning: float, bad: float) -> str:
    if ratio >= bad:
        return _BAD
    return "yellow" if ratio >= warning else "green"
