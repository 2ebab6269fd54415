"""Draws the image without a display: two panels per row, with a common x axis."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_numbers import read_digits
from trainvitals.views.plot.timeline import Axis, Part, choose_axis, sort_parts

if TYPE_CHECKING:  # an optional package
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

USUAL_SIZE = (1200, 800)
_DOTS_PER_INCH = 100
_COLUMNS = 2
_MOST_NUMBER = 10**9  # the largest number in a column name that determines the order of lines
_MOST_BORDERS = 30
_MOST_NAMED_LINES = 16
_LEGEND_CHARACTERS = 84  # the number of characters that fit into the width of a panel
_SAMPLE_CHARACTERS = 7  # the width of the line sample beside a name in the legend


class Panel(NamedTuple):
    """A panel of the image, which shows the file columns that match the panel's patterns.

    Attributes:
        title: The panel's title.
        unit: The unit of the panel's y axis.
        columns: Patterns for column names, each with the name of the lines that the pattern
            matches. In the name, `{}` is replaced by the pattern's group.
        highest: The upper end of the y axis; if None, the values determine the upper end.
        is_always_there: Whether the panel is drawn even if no column has values.
    """

    title: str
    unit: str
    columns: Mapping[str, str]
    highest: float | None
    is_always_there: bool = True


class Line(NamedTuple):
    """A line of a panel, with the line's name in the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


PANELS = (
    Panel(
        "GPU utilization",
        "%",
        {r"gpu_(\d{1,4})_util": "GPU {}", r"hpu_(\d{1,4})_util": "HPU {}"},
        100,
    ),
    Panel(
        "Memory in use",
        "%",
        {
            r"gpu_(\d{1,4})_memory_pct": "GPU {}",
            r"hpu_(\d{1,4})_memory_pct": "HPU {}",
            r"memory_percent": "host",
            r"swap_percent": "swap",
        },
        100,
    ),
    Panel("CPU", "%", {r"cpu_percent": "busy", r"io_wait_pct": "waiting for I/O"}, 100),
    Panel(
        "I/O",
        "MB/s",
        {
            r"io_read_rate_mbps": "read",
            r"io_write_rate_mbps": "written",
            r"net_recv_mbps": "network received",
            r"net_sent_mbps": "network sent",
        },
        None,
    ),
    Panel(
        "Temperature",
        "°C",
        {r"gpu_(\d{1,4})_temp_c": "GPU {}", r"hpu_(\d{1,4})_temp_c": "HPU {}"},
        None,
        is_always_there=False,
    ),
    Panel(
        "Power",
        "W",
        {r"gpu_(\d{1,4})_power_w": "GPU {}", r"hpu_(\d{1,4})_power_w": "HPU {}"},
        None,
        is_always_there=False,
    ),
    Panel("Disk space in use", "%", {r"disk_(.+)_used_pct": "{}"}, 100, is_always_there=False),
    Panel(
        "OOM kills and deaths of containers",
        "per snapshot",
        {r"oom_kills": "OOM kills", r"container_deaths": "deaths of containers"},
        None,
        is_always_there=False,
    ),
)
PATTERNS = frozenset(pattern for panel in PANELS for pattern in panel.columns)


def draw(parts: Sequence[Part], size: tuple[int, int] = USUAL_SIZE) -> Figure:
    """Return a figure with the panels that have values or are always drawn.

    Args:
        parts: The contents of the files.
        size: The width and height of the figure in pixels; the panels share the height.

    Raises:
        ConfigurationError: matplotlib is missing, no column has a value, or step numbers restart
            and timestamps are missing.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise ConfigurationError(
            "plot needs matplotlib: pip install 'trainvitals[plot]'"
        ) from error

    parts = sort_parts(parts)
    axis = choose_axis(parts)
    drawn = [
        (panel, lines)
        for panel in PANELS
        if (lines := gather_lines(panel, parts, axis)) or panel.is_always_there
    ]
    if not any(lines for _, lines in drawn):
        raise ConfigurationError(
            "all cells of the columns that are plotted are empty; give the files of another run"
        )
    rows = -(-len(drawn) // _COLUMNS)
    width, height = (pixels / _DOTS_PER_INCH for pixels in size)
    figure = Figure((width, height), dpi=_DOTS_PER_INCH, layout="constrained")
    begin = next((part.begin for part in parts if part.begin), "")
    figure.suptitle("Resource timeline" + (begin and f" from {begin[:16].replace('T', ' ')}"))
    grid = figure.subplots(rows, _COLUMNS, sharex=True)
    for number, (panel, lines) in enumerate(drawn):
        axes = grid.flat[number]
        _draw_frame(axes, panel, axis)
        _draw_lines(axes, lines, panel.highest)
        _draw_legend(axes, [line.name for line in lines])
    for axes in grid.flat[len(drawn) :]:
        axes.remove()
    return figure


def gather_lines(panel: Panel, parts: Sequence[Part], axis: Axis) -> list[Line]:
    """Return the lines of a panel that have values, ordered by column, number and rank."""
    ranks = sorted({part.rank for part in parts})
    names = {name for part in parts for name in part.columns}
    lines: list[Line] = []
    for pattern, words in panel.columns.items():
        matches = [match for name in names if (match := re.fullmatch(pattern, name))]
        for match in sorted(matches, key=_by_number_or_name):
            for rank in ranks:
                x, y = _join(match[0], rank, parts, axis)
                name = words.format(*match.groups())
                if any(map(math.isfinite, y)):
                    lines.append(Line(f"rank {rank}: {name}" if len(ranks) > 1 else name, x, y))
    return lines


def _by_number_or_name(match: re.Match[str]) -> list[tuple[int, str]]:
    return [(read_digits(text, _MOST_NUMBER) or 0, text) for text in match.groups()]


def _join(
    column: str, rank: int, parts: Sequence[Part], axis: Axis
) -> tuple[array[float], array[float]]:
    x, y = array("d"), array("d")
    for part, positions in zip(parts, axis.positions, strict=True):
        if part.rank != rank:
            continue
        for position, value in zip(
            positions, part.columns.get(column, [math.nan] * len(positions)), strict=True
        ):
            if x and position < x[-1]:  # the system clock was set back: interrupt the line
                x.append(math.nan)
                y.append(math.nan)
            x.append(position)
            y.append(value)
        if axis.is_time:  # interrupt the line between two files
            x.append(math.nan)
            y.append(math.nan)
    return x, y


def _draw_lines(axes: Axes, lines: Sequence[Line], highest: float | None) -> None:
    from matplotlib import color_sequences  # noqa: PLC0415 - an optional package

    if len(lines) > len(color_sequences["tab10"]):
        axes.set_prop_cycle(color=color_sequences["tab20"])
    for line in lines:
        lonely = _find_lonely(line.y)
        axes.plot(
            line.x, line.y, label=line.name, linewidth=1, marker=".", markersize=4, markevery=lonely
        )
    if highest is None:
        highest = max((y for line in lines for y in line.y if math.isfinite(y)), default=0)
    axes.set_ylim(0, highest * 1.04 if highest > 0 else 1)
    if not lines:
        note = axes.text(0.5, 0.5, "not recorded", color="0.5", ha="center", va="center")
        note.set_transform(axes.transAxes)
        axes.set_yticks([])


def _find_lonely(values: Sequence[float]) -> list[int]:
    """Return the indices of single values between two gaps; such values are drawn as dots."""
    known = [False, *map(math.isfinite, values), False]
    return [
        index
        for index in range(len(values))
        if known[index + 1] and not known[index] and not known[index + 2]
    ]


def _draw_frame(axes: Axes, panel: Panel, axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - an optional package

    axes.set_title(panel.title)
    axes.set_xlabel(axis.label)
    axes.set_ylabel(panel.unit)
    axes.set_xmargin(0.01)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.ticklabel_format(style="plain", useOffset=False)
    axes.tick_params(labelbottom=True)  # show the labels even if another panel is below
    axes.grid(visible=True, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axis.positions) <= _MOST_BORDERS:
        for positions in axis.positions[1:]:
            axes.axvline(positions[0], color="0.8", linewidth=0.8, zorder=0)


def _draw_legend(axes: Axes, names: Sequence[str]) -> None:
    if not 1 < len(names) <= _MOST_NAMED_LINES:
        return
    widest = max(map(len, names)) + _SAMPLE_CHARACTERS
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        borderaxespad=4,  # below the axis label
        ncols=max(1, min(len(names), 5, _LEGEND_CHARACTERS // widest)),
        fontsize="small",
        frameon=False,
        handlelength=1.5,
        columnspacing=1.2,
        markerscale=0,
    )
