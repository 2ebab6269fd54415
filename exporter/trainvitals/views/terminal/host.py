"""The terminal section for the host: CPU, memory, OOM kills, disks, network."""

from __future__ import annotations

from collections.abc import Iterator

from trainvitals.foreign_text import clean_text
from trainvitals.units import (
    UNKNOWN,
    format_byte_rate,
    format_bytes,
    format_bytes_of,
    format_percent,
)
from trainvitals.views.machine.headline import HOST_MEMORY, TONES
from trainvitals.views.machine.picture import Filesystem, Picture
from trainvitals.views.terminal.gauges import Figure, Figures, History
from trainvitals.views.terminal.headline import STYLES, find_style

_ORDER = {style: at for at, style in enumerate(STYLES.values())}


def show_host(picture: Picture, *, lists_all: bool) -> Figures:
    """Return the section that shows the host's values.

    Args:
        picture: The machine state to draw.
        lists_all: Whether this section is the only one on the screen.
    """
    figures = list(_list_figures(picture))
    always = 2  # CPU and memory are always first, followed by the values with a problem.
    rest = sorted(figures[always:], key=lambda figure: _ORDER[figure.style])
    return Figures(5, "HOST", (*figures[:always], *rest), is_wide=lists_all)


def _list_figures(picture: Picture) -> Iterator[Figure]:
    host = picture.host
    if host.cpu_percent is not None:
        cores = "" if host.cores is None else f" of {host.cores} cores"
        ratio = host.cpu_percent / 100
        yield Figure("cpu", f"{format_percent(ratio)}{cores}", ratio)
    total, available = host.memory_total_bytes, host.memory_available_bytes
    if total and available is not None:
        words = format_bytes_of(total - available, total)
        style = find_style(picture, "host", "", *HOST_MEMORY)
        yield Figure("memory", words, 1 - available / total, style)
    if host.oom_kills is not None:
        lately = f", {host.recent_oom_kills} in 15 min" if host.recent_oom_kills else ""
        style = find_style(picture, "host", "", "HostOOMKill")
        yield Figure("OOM kills", f"{host.oom_kills} since boot{lately}", style=style)
    for one in host.filesystems:
        yield _make_disk(one, find_style(picture, "filesystem", one.mountpoint))
        for trouble in picture.find_troubles("filesystem", one.mountpoint, "HostInodesLow"):
            words = f"{format_percent(one.files_free_ratio)} free"
            label = f"{clean_text(one.mountpoint)} inodes"
            yield Figure(label, words, style=STYLES[TONES[trouble.severity]])
    yield from _list_rates(picture)


def _make_disk(one: Filesystem, style: str) -> Figure:
    name, size, free = clean_text(one.mountpoint), one.size_bytes, one.avail_bytes
    if one.trouble or not size or free is None:
        return Figure(name, clean_text(one.trouble) or UNKNOWN, style=style)
    ratio = 1 - free / size
    ending = "ro" if one.is_readonly else "free"
    words = f"{format_percent(ratio)} {format_bytes(free)} {ending}"
    return Figure(name, words, ratio, style)


def _list_rates(picture: Picture) -> Iterator[Figure]:
    host = picture.host
    if host.swap_total_bytes and host.swap_free_bytes is not None:
        used = host.swap_total_bytes - host.swap_free_bytes
        words, ratio = format_bytes_of(used, host.swap_total_bytes), used / host.swap_total_bytes
        yield Figure("swap", words, ratio)
    if host.load:
        yield Figure("load", " ".join(f"{value:.2f}" for value in host.load))
    if host.io_wait_ratio is not None:
        style = find_style(picture, "host", "", "HostIOBottleneck")
        yield Figure("I/O wait", format_percent(host.io_wait_ratio), host.io_wait_ratio, style)
    disks = (host.disk_read_bytes_per_second, host.disk_written_bytes_per_second)
    yield from _pair_rates("disks", disks, ("r", "w"))
    network = (host.received_bytes_per_second, host.transmitted_bytes_per_second)
    yield from _pair_rates("network", network, ("in", "out"))
    if any(host.cpu_trace):
        yield Figure("cpu 15min", history=History(host.cpu_trace, 0.0, 100.0))
    if any(host.memory_trace):
        yield Figure("mem 15min", history=History(host.memory_trace, 0.0, 1.0))


def _pair_rates(
    label: str, rates: tuple[float | None, float | None], names: tuple[str, str]
) -> Iterator[Figure]:
    if rates != (None, None):
        words = [
            f"{format_byte_rate(rate)} {name}" for rate, name in zip(rates, names, strict=True)
        ]
        yield Figure(label, ", ".join(words))
