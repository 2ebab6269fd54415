"""State timelines: a band for each thing, coloured by the state that it was in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from matplotlib.axes import Axes

from docs.build.pictures.asking import Load
from docs.build.pictures.axes import LETTERS, draw_times, style
from docs.build.pictures.canvas import DOTS, Box, Canvas, measure, write_note
from docs.build.pictures.colours import colour_value, ink_on, map_value
from docs.build.pictures.events import draw_events
from docs.build.pictures.fields import Series, read_series
from docs.build.pictures.times import Window
from docs.build.pictures.units import write_value

Json = Mapping[str, Any]

_LEGEND: Final = 24.0
_LEAST: Final = 5.0  # pixels of a band


def draw(canvas: Canvas, box: Box, panel: Json, load: Load) -> None:
    """Draw a panel of the kind `state-timeline`."""
    series = read_series(panel, load.panels[panel["id"]])
    if not series:
        write_note(canvas, box, str(panel["fieldConfig"]["defaults"].get("noValue") or "No data"))
        return
    names = max(measure(one.name, LETTERS) for one in series)
    left = min(names + 10, 0.3 * box.width)
    bands = box.shrink(left, 4, 6, 20 + _LEGEND)
    series = series[: max(1, int(bands.height / _LEAST))]
    axes = canvas.add_graph(bands)
    style(axes)
    axes.set_ylim(len(series), 0)
    axes.set_yticks([])
    window = load.panels[panel["id"]][0].query.pace.window
    draw_times(axes, window, bands.width)
    for place, one in enumerate(series):
        _draw_band(axes, bands, one, place + 0.5, panel["options"].get("rowHeight", 0.9), window)
    _write_names(canvas, Box(box.left, bands.top, left - 6, bands.height), series)
    draw_events(axes, load)
    _draw_legend(canvas, Box(box.left, box.bottom - _LEGEND, box.width, _LEGEND), series)


def _draw_band(
    axes: Axes, box: Box, series: Series, middle: float, height: float, window: Window
) -> None:
    """Draw the states of one thing, each with its name where it has room."""
    pixel = window.seconds / box.width
    is_tall = box.height / axes.get_ylim()[0] > LETTERS + 1
    opacity = series.custom.get("fillOpacity", 70) / 100
    for start, end, value in _list_spans(series, window):
        colour = colour_value(value, series.config)
        axes.barh(middle, end - start, height, start, color=colour, alpha=opacity, linewidth=0)
        text = _write(value, series.config)
        if is_tall and measure(text, LETTERS) + 10 < (end - start) / pixel:
            axes.text(
                start + 5 * pixel,
                middle,
                text,
                fontsize=LETTERS * 72 / DOTS,
                color=ink_on(colour),
                va="center_baseline",
                parse_math=False,
            )


def _write_names(canvas: Canvas, box: Box, series: Sequence[Series]) -> None:
    height = box.height / len(series)
    every = max(1, math.ceil(11 / height))  # names stand as close as they can be read
    for place, one in enumerate(series[::every]):
        middle = box.top + (place * every + 0.5) * height
        canvas.write(one.name, box.right, middle, size=LETTERS, side="right", room=box.width)


def _list_spans(series: Series, window: Window) -> Iterator[tuple[float, float, float]]:
    """Give each state with its beginning and its end; what is not known belongs to none."""
    times, values = series.times, series.values
    if len(times) == 1:
        return
    step = min(later - at for at, later in pairwise(times))
    start = 0
    for at in range(1, len(times) + 1):
        is_end = at == len(times)
        if is_end or values[at] != values[start]:
            if not math.isnan(values[start]):
                end = times[at - 1] + step if is_end else times[at]
                yield max(times[start], window.start), min(end, window.end), values[start]
            start = at


def _write(value: float, config: Json) -> str:
    return map_value(value, config).text or write_value(value, str(config.get("unit") or ""))


def _draw_legend(canvas: Canvas, box: Box, series: Sequence[Series]) -> None:
    known = {}
    for one in series:
        for value in sorted({float(v) for v in one.values if not math.isnan(v)}):
            known[_write(value, one.config)] = colour_value(value, one.config)
    left, middle = box.left + 4, box.top + box.height / 2
    for text, colour in known.items():
        canvas.fill(Box(left, middle - 2, 14, 4), colour, radius=1)
        left += 20
        left += canvas.write(text, left, middle, size=LETTERS) + 16
