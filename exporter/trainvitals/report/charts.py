"""Charts of a report as SVG, drawn by matplotlib, or as sparklines if matplotlib is missing.

Colours are CSS variables of the page, which defines a light set and a dark set. matplotlib draws
with placeholder colours, which are then replaced by the variables. The titles of bars and points
are shown as tooltips.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from trainvitals.report.best import has_word
from trainvitals.report.figures import CAUSES, Report
from trainvitals.report.wording import FIGURES, Chart, clean_name, name_metric, read_clock
from trainvitals.sources.prometheus import Points
from trainvitals.units import (
    format_date,
    format_energy,
    format_hours,
    format_percent,
    format_temperature,
    format_value,
)
from trainvitals.views.sparkline import sparkline_svg

if TYPE_CHECKING:  # an optional package
    from matplotlib.axes import Axes

_FIRST_METRICS = ("loss", "iou", "dice", "accuracy")
_MOST_PICTURES, _MOST_LABELS = 6, 8
# The lines of runs use the cause colours that are the easiest to distinguish.
_RUN_COLORS = (1, 3, 6, 5, 7, 9)
_INK, _LINE = "#0102f0", "#0102f1"
_GIB = float(1 << 30)
_WIDTH_INCHES, _HEIGHT_INCHES = 4.4, 2.1
_DOT_POINTS = 4

_Join = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Course:
    """A line of a chart, or the segments of one colour in the bars of a chart.

    Attributes:
        name: The course's name in the legend; an empty string if the chart has only one course.
        color: The number of the course's colour, from 1.
        values: The course's value for each slot, in base units; None is drawn as a gap.
    """

    name: str
    color: int
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart of a report, before it is drawn.

    Attributes:
        title: The chart's heading.
        slots: The hours or days of the chart, each with its label on the time axis and full name.
        courses: The lines of the chart, or the segments of the chart's bars.
        unit: The unit of the value axis, in base units, such as 3600.0 for hours.
        write: A function that formats a value of the chart as text.
        is_stacked: Whether the courses are drawn as segments of bars instead of lines.
        has_zero: Whether the value axis starts at 0.
        top: The upper end of the value axis in base units; if None, the values determine it.
        target: The value that a dashed line marks, in base units; if None, no dashed line is drawn.
    """

    title: str
    slots: tuple[tuple[str, str], ...]
    courses: tuple[Course, ...]
    unit: float
    write: Callable[[float | None], str]
    is_stacked: bool = False
    has_zero: bool = True
    top: float | None = None
    target: float | None = None


def list_pictures(charts: Sequence[Chart], report: Report) -> list[Picture]:
    """Return the charts of a section, except charts in which no value differs from 0."""
    found = [picture for chart in charts for picture in _choose(chart, report)]
    return [
        picture
        for picture in found
        if any(value for course in picture.courses for value in course.values)
    ]


def _choose(chart: Chart, report: Report) -> list[Picture]:
    slots = _list_slots(report)
    shown, found = tuple(slots.values()), report.accelerators
    each = "hour" if report.kind == "daily" else "day"

    def lay(points: Points, join: _Join) -> tuple[float | None, ...]:
        return _lay_out(report, points, list(slots), join)

    if chart == "uses":
        numbers = {cause: number for number, cause in enumerate(CAUSES, 1)}
        parts = tuple(
            Course(CAUSES[use.cause], numbers[use.cause], lay(use.by_hour, math.fsum))
            for use in found.uses
            if use.cause in CAUSES
        )
        title = f"Accelerator time in each {each} by what it went to, hours"
        return [Picture(title, shown, parts, 3600.0, format_hours, is_stacked=True)]
    if chart == "energy":
        course = Course("", 1, lay(found.joules_by_hour, math.fsum))
        title = f"Energy in each {each}, kWh"
        return [Picture(title, shown, (course,), 3.6e6, format_energy, is_stacked=True)]
    if chart == "busy":
        course = Course("", 1, lay(found.busy_by_hour, _average))
        return [Picture("Busy accelerators, %", shown, (course,), 0.01, format_percent, top=1.0)]
    if chart == "heat":
        course = Course("", 1, lay(found.celsius_by_hour, max))
        return [Picture("Hottest accelerator, °C", shown, (course,), 1.0, format_temperature)]
    if chart == "expected":
        return _list_expected(report, shown, lay)
    return _list_metrics(report, shown, lay)


def _list_metrics(
    report: Report,
    slots: tuple[tuple[str, str], ...],
    lay: Callable[[Points, _Join], tuple[float | None, ...]],
) -> list[Picture]:
    """Return charts of metrics, each with a line for each of the metric's best runs."""
    every = dict.fromkeys((best.name, best.split) for best in report.runs.best)
    first = [key for word in _FIRST_METRICS for key in every if has_word(key[0], word)]
    pictures = []
    for metric in list(dict.fromkeys([*first, *every]))[:_MOST_PICTURES]:
        drawn = [best for best in report.runs.best if (best.name, best.split) == metric]
        courses = tuple(
            Course(
                clean_name(best.run), color, lay(best.by_hour, min if best.is_lower_better else max)
            )
            for best, color in zip(drawn, _RUN_COLORS, strict=False)
        )
        pictures.append(
            Picture(
                name_metric(*metric),
                slots,
                courses,
                1.0,
                format_value,
                has_zero=False,
                target=drawn[0].target,
            )
        )
    return pictures


def _list_expected(
    report: Report,
    slots: tuple[tuple[str, str], ...],
    lay: Callable[[Points, _Join], tuple[float | None, ...]],
) -> list[Picture]:
    """Return charts of the runs' expected figures, each with the expected value as a target."""
    pictures = []
    for each in report.runs.expected[:_MOST_PICTURES]:
        name, write = FIGURES[each.figure]
        unit, sign, join = (_GIB, ", GiB", max) if each.figure == "memory" else (1.0, "", _average)
        course = Course("", 1, lay(each.by_hour, join))
        title = f"{name} of {clean_name(each.run)} on {clean_name(each.instance)}{sign}"
        pictures.append(Picture(title, slots, (course,), unit, write, target=each.expected))
    return pictures


def _list_slots(report: Report) -> dict[str, tuple[str, str]]:
    """Return the label and full name of each hour (daily) or day (weekly), by a unique key."""
    slots = dict[str, tuple[str, str]]()
    for moment in range(int(report.begin), int(report.planned_end), 3600):
        when = read_clock(report, moment)
        names = (f"{when:%H}", f"{when:%H:%M}")
        if report.kind == "weekly":
            names = (f"{when:%a}", f"{when:%A}, {format_date(when)}")
        slots.setdefault(_name_slot(report, moment), names)
    return slots


def _name_slot(report: Report, moment: float) -> str:
    # The offset distinguishes the hour that occurs twice when daylight saving time ends.
    return read_clock(report, moment).strftime("%d %H %z" if report.kind == "daily" else "%m-%d")


def _lay_out(
    report: Report, points: Points, slots: Sequence[str], join: _Join
) -> tuple[float | None, ...]:
    """Return one value for each slot of a chart; None for a slot without points."""
    found: dict[str, list[float]] = {}
    for moment, value in points:
        found.setdefault(_name_slot(report, moment - 1), []).append(value)
    return tuple(join(found[slot]) if slot in found else None for slot in slots)


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def draw(picture: Picture, key: str) -> str:
    """Return a chart as SVG elements.

    Args:
        picture: The chart to draw.
        key: A prefix that makes the chart's SVG identifiers unique on the page.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an optional package
    except ImportError:
        return "".join(map(_draw_sparkline, picture.courses, [picture] * len(picture.courses)))
    from matplotlib import rc_context  # noqa: PLC0415

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": key, "text.parse_math": False}):
        figure = Figure((_WIDTH_INCHES, _HEIGHT_INCHES), layout="constrained")
        axes = figure.subplots()
        titles = (_draw_bars if picture.is_stacked else _draw_lines)(axes, picture)
        if picture.target is not None:
            line = axes.axhline(picture.target / picture.unit, color=_INK, ls="--", linewidth=1)
            line.set_gid(f"title{len(titles)}")
            titles.append(f"target: {picture.write(picture.target)}")
        _draw_frame(axes, picture)
        page = io.StringIO()
        figure.savefig(page, format="svg", transparent=True, metadata={"Date": None})
    return _adapt(page.getvalue(), titles, picture.title, key)


def _draw_sparkline(course: Course, picture: Picture) -> str:
    known = [value for value in course.values if value is not None]
    if not known:
        return ""
    label = f"{course.name or picture.title}, at most {picture.write(max(known))}"
    if picture.target is not None:
        label += f", target {picture.write(picture.target)}"
    low = 0.0 if picture.has_zero else min(known)
    svg = sparkline_svg(course.values, label, low=low, high=picture.top or max(known))
    return f'<p class="small">{escape(label)}</p>{svg}'


def _draw_bars(axes: Axes, picture: Picture) -> list[str]:
    bases, titles = [0.0] * len(picture.slots), list[str]()
    for course in picture.courses:
        for place, value in enumerate(course.values):
            if not value:
                continue
            height = value / picture.unit
            (bar,) = axes.bar(place, height, 0.85, bases[place], color=_stand_in(course.color))
            bar.set_gid(f"title{len(titles)}")
            words = f"{picture.write(value)} {course.name}".strip()
            titles.append(f"{picture.slots[place][1]}: {words}")
            bases[place] += height
    return titles


def _draw_lines(axes: Axes, picture: Picture) -> list[str]:
    titles = list[str]()
    for course in picture.courses:
        color = _stand_in(course.color)
        heights = [math.nan if v is None else v / picture.unit for v in course.values]
        axes.plot(range(len(heights)), heights, color=color, linewidth=1.5)
        for place, value in enumerate(course.values):
            if value is None:
                continue
            (dot,) = axes.plot([place], [heights[place]], ".", color=color, markersize=_DOT_POINTS)
            dot.set_gid(f"title{len(titles)}")
            words = ", ".join(filter(None, (course.name, picture.write(value))))
            titles.append(f"{picture.slots[place][1]}: {words}")
    return titles


def _draw_frame(axes: Axes, picture: Picture) -> None:
    from matplotlib.ticker import MaxNLocator, ScalarFormatter  # noqa: PLC0415

    step = max(1, math.ceil(len(picture.slots) / _MOST_LABELS))
    places = range(0, len(picture.slots), step)
    axes.set_xticks(places, [picture.slots[place][0] for place in places])
    axes.set_xlim(-0.6, len(picture.slots) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)))
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    if picture.has_zero:
        axes.set_ylim(0, None if picture.top is None else picture.top / picture.unit)
    axes.grid(visible=True, axis="y", color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(left=False, bottom=False, labelcolor=_INK, labelsize=9)
    axes.spines[:].set_visible(False)


def _stand_in(color: int) -> str:
    return f"#0101{color:02x}"


def _remove(page: str, begin: str, end: str) -> str:
    """Return a page without the passages that start with the text `begin` and end with `end`."""
    first, *parts = page.split(begin)
    return "".join((first, *(part.partition(end)[2] for part in parts)))


def _adapt(page: str, titles: Sequence[str], title: str, key: str) -> str:
    """Return matplotlib's SVG in the page's colours, without metadata and styles."""
    box = re.search(r'viewBox="([\d. ]+)"', page)
    body = page[page.index("<defs>", page.index("<svg")) :] if box else ""
    for begin, end in (("<metadata>", "</metadata>"), ("<style", "</style>"), ("<!--", "-->")):
        body = _remove(body, begin, end)
    body = re.sub(r' clip-path="[^"]*"', "", body)
    body = re.sub(
        r'<g id="title(\d+)">', lambda m: f"<g><title>{escape(titles[int(m[1])])}</title>", body
    )
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r'(id="|href="#)(?=m)', rf"\1{key}", body)
    body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", body)
    body = re.sub(r"#0101([0-9a-f]{2})", lambda m: f"var(--c{int(m[1], 16)})", body)
    body = body.replace(_INK, "var(--dim)").replace(_LINE, "var(--line)")
    size = box[1] if box else "0 0 1 1"
    name = escape(title)
    return f'<svg viewBox="{size}" role="img" aria-label="{name}"><title>{name}</title>{body}'
