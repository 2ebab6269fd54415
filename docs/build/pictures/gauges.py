"""Bar gauges: a bar for each thing that shows how full it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from docs.build.pictures.asking import Load
from docs.build.pictures.canvas import Box, Canvas, measure, write_note
from docs.build.pictures.colours import BAR, colour_value, map_value
from docs.build.pictures.fields import read_series, reduce
from docs.build.pictures.units import write_value

Json = Mapping[str, Any]

_TALLEST: Final = 40.0
_LEAST: Final = 18.0
_LETTERS: Final = 12.0


def draw(canvas: Canvas, box: Box, panel: Json, load: Load) -> None:
    """Draw a panel of the kind `bargauge`."""
    series = read_series(panel, load.panels[panel["id"]])
    if not series:
        write_note(canvas, box, str(panel["fieldConfig"]["defaults"].get("noValue") or "No data"))
        return
    series = series[: max(1, int(box.height / _LEAST))]
    height = min(_TALLEST, box.height / len(series))
    room = min(max(measure(one.name, _LETTERS) for one in series) + 10, 0.35 * box.width)
    how = panel["options"]["reduceOptions"]["calcs"][0]
    for place, one in enumerate(series):
        value = reduce(one.values, how)
        text = map_value(value, one.config).text or write_value(
            value, one.unit, one.config.get("decimals"), now=load.window.end
        )
        line = Box(box.left, box.top + place * height, box.width, height)
        middle = line.top + height / 2
        canvas.write(one.name, line.left + 4, middle, size=_LETTERS, room=room - 8)
        track = line.shrink(room, 3, 74, 3)
        low, high = one.config.get("min", 0), one.config.get("max", 1)
        share = min(1.0, max(0.0, (value - low) / ((high - low) or 1)))
        colour = colour_value(value, one.config)
        canvas.fill(track, BAR)
        filled = Box(track.left, track.top, track.width * share, track.height)
        canvas.fill(filled, colour, opacity=0.85)
        canvas.write(text, line.right - 6, middle, size=_LETTERS, colour=colour, side="right")
