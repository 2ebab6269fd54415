"""Pictures of a report as SVG.

Colours are classes of the page around them, which has one set for light and one for dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from trainvitals.report.amounts import (
    make_harmless,
    write_energy,
    write_hours,
    write_ratio,
    write_value,
)
from trainvitals.report.best import has_word
from trainvitals.report.blocks import Chart
from trainvitals.report.canvas import (
    DEPTH,
    LEFT,
    LINES,
    ROOM,
    TOP,
    Scale,
    connect,
    dot_spots,
    find_values,
    frame,
    gather,
    list_slots,
    mark_axis,
    name_slot,
    place_slot,
    rise,
    round_up,
)
from trainvitals.report.figures import Report
from trainvitals.report.points import Points
from trainvitals.report.waste import CAUSES

_GAP = 0.15
_FIRST_METRICS = ("loss", "iou", "dice", "accuracy")
_MOST_PICTURES, _MOST_RUNS = 6, 6


def _write_celsius(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} °C"


_HOURS = Scale(3600.0, "hours", write_hours)
_KILOWATT_HOURS = Scale(3.6e6, "kWh", write_energy)
_PERCENT = Scale(0.01, "%", write_ratio)
_CELSIUS = Scale(1.0, "°C", _write_celsius)


def draw(chart: Chart, report: Report) -> str:
    """Draw one picture; empty where there is nothing to be drawn."""
    found = report.accelerators
    if chart == "uses":
        parts = {use.cause: use.by_hour for use in found.uses}
        return _draw_bars(
            report,
            f"Accelerator time in each {name_slot(report)} by what it went to",
            parts,
            _HOURS,
        )
    if chart == "busy":
        return _draw_means(report, "Busy accelerators", found.busy_by_hour, _PERCENT, most=1.0)
    if chart == "metrics":
        return "".join(_draw_metric(report, name) for name in _choose_metrics(report))
    if chart == "energy":
        parts = {"energy": found.joules_by_hour}
        return _draw_bars(report, f"Energy in each {name_slot(report)}", parts, _KILOWATT_HOURS)
    return _draw_means(report, "Hottest accelerator", found.celsius_by_hour, _CELSIUS, join=max)


def _draw_bars(
    report: Report,
    title: str,
    parts: Mapping[str, Points],
    scale: Scale,
) -> str:
    slots = list_slots(report)
    sums = {
        name: {key: math.fsum(values) for key, values in gather(report, points).items()}
        for name, points in parts.items()
    }
    totals = [math.fsum(part.get(slot.key, 0.0) for part in sums.values()) for slot in slots]
    top = round_up(max(totals, default=0.0), scale)
    if not top:
        return ""
    step = ROOM / max(len(slots), 1)
    bars = []
    for place, slot in enumerate(slots):
        height = 0.0
        for name, part in sums.items():
            value = part.get(slot.key, 0.0)
            if value <= 0:
                continue
            size = DEPTH * value / top
            height += size
            left = LEFT + (place + _GAP / 2) * step
            words = f"{slot.name}: {scale.write(value)}" + (
                f" {CAUSES[name]}" if name in CAUSES else ""
            )
            bars.append(
                f'<rect class="c-{escape(name)}" x="{left:.1f}" y="{TOP + DEPTH - height:.1f}"'
                f' width="{step * (1 - _GAP):.1f}" height="{size:.2f}"><title>{escape(words)}'
                "</title></rect>"
            )
    return frame(f"{title}, {scale.name}", slots, mark_axis(top, scale), "".join(bars))


def _draw_means(
    report: Report,
    title: str,
    points: Points,
    scale: Scale,
    *,
    most: float | None = None,
    join: Callable[[Sequence[float]], float] | None = None,
) -> str:
    slots = list_slots(report)
    means = find_values(report, slots, points, join or _average)
    known = [value for value in means if value is not None]
    top = most or round_up(max(known, default=0.0), scale)
    if not known or not top:
        return ""
    spots = [
        None if value is None else (place_slot(slots, place), rise(value / top))
        for place, value in enumerate(means)
    ]
    words = [None if value is None else scale.write(value) for value in means]
    content = f"{connect(spots)}{dot_spots(slots, spots, words)}"
    return frame(f"{title}, {scale.name}", slots, mark_axis(top, scale), content)


def _choose_metrics(report: Report) -> list[tuple[str, str]]:
    """Give names and splits of the metrics that are drawn: losses, IoU and Dice before others."""
    every = dict.fromkeys((best.name, best.split) for best in report.runs.best)
    wanted = [key for word in _FIRST_METRICS for key in every if has_word(key[0], word)]
    return list(dict.fromkeys([*wanted, *every]))[:_MOST_PICTURES]


def _draw_metric(report: Report, metric: tuple[str, str]) -> str:
    """Draw the best of each hour of a metric, a line for each of the best runs."""
    drawn = [best for best in report.runs.best if (best.name, best.split) == metric][:_MOST_RUNS]
    values = [value for best in drawn for _, value in best.by_hour]
    if not values:
        return ""
    slots = list_slots(report)
    least, most = _widen(min(values), max(values))
    lines = []
    for number, best in enumerate(drawn, 1):
        means = find_values(report, slots, best.by_hour, min if best.is_lower_better else max)
        spots = [
            None
            if value is None
            else (place_slot(slots, place), rise((value - least) / (most - least)))
            for place, value in enumerate(means)
        ]
        words = [
            None if value is None else f"{make_harmless(best.run)}, {write_value(value)}"
            for value in means
        ]
        lines.append(
            f'<g class="run-{number}">{connect(spots)}{dot_spots(slots, spots, words)}</g>'
        )
    title = make_harmless(" ".join(each for each in metric if each))
    names = "".join(
        f'<span class="name"><span class="key run-{number}"></span>{escape(make_harmless(best.run, 40))}</span>'
        for number, best in enumerate(drawn, 1)
    )
    marks = [
        (part / LINES, f"{least + (most - least) * part / LINES:.3g}") for part in range(LINES + 1)
    ]
    return frame(title, slots, marks, "".join(lines), names)


def _widen(least: float, most: float) -> tuple[float, float]:
    """Give an axis some room around what is drawn."""
    room = max(0.08 * (most - least), 0.02 * abs(most)) or 1.0
    return least - room, most + room


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
