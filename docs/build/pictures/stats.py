"""Panels of one large value, coloured by how good it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from docs.build.pictures.asking import Load
from docs.build.pictures.canvas import Box, Canvas, Weight, measure, wrap
from docs.build.pictures.colours import (
    TEXT,
    colour_value,
    ink_on,
    map_value,
    name_colour,
)
from docs.build.pictures.fields import Series, read_series, reduce
from docs.build.pictures.units import write_value

Json = Mapping[str, Any]

_LARGEST, _SMALLEST = 40.0, 12.0
_GAP: Final = 4.0


def draw(canvas: Canvas, box: Box, panel: Json, load: Load) -> None:
    """Draw a panel of the kind `stat`."""
    series = read_series(panel, load.panels[panel["id"]])
    if not series:
        _draw_nothing(canvas, box, panel)
        return
    is_wide = box.width >= box.height
    count = len(series)
    for place, one in enumerate(series):
        width = (box.width - _GAP * (count - 1)) / count if is_wide else box.width
        height = box.height if is_wide else (box.height - _GAP * (count - 1)) / count
        left = box.left + place * (width + _GAP) * is_wide
        top = box.top + place * (height + _GAP) * (not is_wide)
        _draw_one(canvas, Box(left, top, width, height), panel, one, has_name=count > 1, load=load)


def _draw_nothing(canvas: Canvas, box: Box, panel: Json) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    base = (defaults["thresholds"]["steps"] or [{"color": "green"}])[0]["color"]
    colour = map_value(None, defaults).colour or name_colour(base)
    text = str(map_value(None, defaults).text or defaults.get("noValue") or "No data")
    if panel["options"]["colorMode"].startswith("background"):
        canvas.fill(box, colour, radius=2)
        colour = ink_on(colour)
    _write_large(canvas, box, wrap(text, box.width - 12, 13), colour, largest=13)


def _draw_one(
    canvas: Canvas, box: Box, panel: Json, series: Series, *, has_name: bool, load: Load
) -> None:
    options = panel["options"]
    value = reduce(series.values, options["reduceOptions"]["calcs"][0])
    decimals = series.config.get("decimals")
    written = write_value(value, series.unit, decimals, now=load.window.end)
    text = map_value(value, series.config).text or written
    colour = colour_value(value, series.config)
    ink = colour
    if options["colorMode"].startswith("background"):
        canvas.fill(box, colour, radius=2)
        ink = ink_on(colour)
    if options["graphMode"] == "area" and series.values.size > 1:
        _draw_course(canvas, box, series, ink)
    mode = options.get("textMode", "auto")
    if mode == "name":
        text = series.name
    if mode == "value_and_name" or (mode == "auto" and has_name):
        canvas.write(
            series.name,
            box.left + box.width / 2,
            box.top + 14,
            size=12,
            colour=ink if ink != colour else TEXT,
            side="center",
            room=box.width - 8,
        )
        box = box.shrink(0, 18, 0, 0)
    _write_large(canvas, box, [text], ink if options["colorMode"] != "none" else TEXT)


def _write_large(
    canvas: Canvas, box: Box, lines: Sequence[str], colour: str, largest: float = _LARGEST
) -> None:
    weight: Weight = "bold" if largest == _LARGEST else "normal"
    widest = max(measure(line, 100, weight) for line in lines) / 100
    high = 0.6 * box.height / len(lines)
    size = max(_SMALLEST, min(largest, (box.width - 16) / widest, high))
    middle = box.top + box.height / 2 - (len(lines) - 1) * size * 0.65
    for line in lines:
        center = box.left + box.width / 2
        canvas.write(
            line,
            center,
            middle,
            size=size,
            colour=colour,
            weight=weight,
            side="center",
            room=box.width - 4,
        )
        middle += size * 1.3


def _draw_course(canvas: Canvas, box: Box, series: Series, colour: str) -> None:
    """Draw how the value went, faintly, in the lower part."""
    axes = canvas.add_graph(Box(box.left, box.top + 0.6 * box.height, box.width, 0.4 * box.height))
    axes.set_axis_off()
    low, high = np.nanmin(series.values), np.nanmax(series.values)
    foot = 0.0 if 0 <= low < 0.5 * high else float(low)
    axes.set_ylim(foot, high if high > foot and math.isfinite(high) else foot + 1)
    axes.set_xlim(series.times[0], series.times[-1])
    axes.fill_between(series.times, foot, series.values, color=colour, alpha=0.18, linewidth=0)
    axes.plot(series.times, series.values, color=colour, linewidth=0.9, alpha=0.8)
