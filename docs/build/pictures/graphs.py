"""Graphs over time, with a table of their figures below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from docs.build.pictures.asking import Load
from docs.build.pictures.axes import (
    LETTERS,
    draw_times,
    find_limits,
    find_powers,
    find_ticks,
    style,
    write_ticks,
)
from docs.build.pictures.canvas import Box, Canvas, measure
from docs.build.pictures.colours import FAINT, GRID, colour_series, list_lines
from docs.build.pictures.events import draw_events
from docs.build.pictures.fields import CALCULATIONS, Numbers, Series, read_series, reduce
from docs.build.pictures.units import write_value

Json = Mapping[str, Any]

_ROW: Final = 20.0
_LEGEND_SHARE: Final = 0.35  # of a panel's height at most, as in Grafana
_NAME: Final = 120.0  # the width that is kept for names


def draw(canvas: Canvas, box: Box, panel: Json, load: Load) -> None:
    """Draw a panel of the kind `timeseries`."""
    answers = load.panels[panel["id"]]
    series = read_series(panel, answers)
    legend = _sort(series, panel["options"]["legend"])
    room = _LEGEND_SHARE * box.height
    rows = min(len(legend), int((room - _ROW) / _ROW)) if panel["options"]["legend"] else 0
    below = (rows + 1) * _ROW + 4
    graph = box.shrink(0, 4, 0, below)
    _draw_graph(canvas, graph, panel, series, load)
    _draw_legend(canvas, Box(box.left, box.bottom - below, box.width, below), panel, legend, rows)


def _draw_graph(
    canvas: Canvas, box: Box, panel: Json, series: Sequence[Series], load: Load
) -> None:
    window = load.panels[panel["id"]][0].query.pace.window
    sides = {side: [one for one in series if _side(one) == side] for side in ("left", "right")}
    scales = {side: _find_scale(several, box) for side, several in sides.items() if several}
    widths = {
        side: max((measure(text, LETTERS) for text in texts), default=0.0) + 8
        for side, (_, _, _, texts) in scales.items()
    }
    inside = box.shrink(widths.get("left", 4.0), 2, widths.get("right", 4.0), 20)
    for side, (low, high, ticks, texts) in scales.items():
        axes = canvas.add_graph(inside)
        style(axes)
        if panel["fieldConfig"]["defaults"]["custom"]["scaleDistribution"]["type"] == "log":
            axes.set_yscale("log")
            axes.minorticks_off()
        axes.set_ylim(low, high)
        axes.set_yticks(ticks, texts)
        is_first = side == next(iter(scales))
        if is_first:
            axes.grid(visible=True, axis="y", color=GRID, linewidth=0.7)
        else:
            axes.yaxis.tick_right()
            axes.tick_params(length=0)
        draw_times(axes, window, inside.width, has_grid=is_first)
        if not is_first:
            axes.set_xticks([])
        _draw_lines(axes, sides[side], box)
        if is_first:
            _draw_limits(axes, panel, low, high)
            draw_events(axes, load)


def _side(series: Series) -> str:
    return "right" if series.custom.get("axisPlacement") == "right" else "left"


def _find_scale(series: Sequence[Series], box: Box) -> tuple[float, float, list[float], list[str]]:
    """Give where an axis begins and ends, and its ticks with their texts."""
    config = series[0].config
    values = np.concatenate(_stack(series)) if _is_stacked(series) else _join(series)
    values = values[np.isfinite(values)]
    is_log = series[0].custom["scaleDistribution"]["type"] == "log"
    if is_log:
        values = values[values > 0]
    low, high = (values.min(), values.max()) if values.size else (math.nan, math.nan)
    if is_log:
        low, high = (0.1, 1.0) if math.isnan(low) else (low / 1.3, high * 1.3)
        ticks = find_powers(low, high)
    else:
        low, high = find_limits(low, high, config.get("min"), config.get("max"))
        is_whole = config.get("decimals") == 0
        ticks = find_ticks(low, high, series[0].unit, box.height, is_whole=is_whole)
    return low, high, ticks, write_ticks(ticks, series[0].unit, config.get("decimals"))


def _join(series: Sequence[Series]) -> Numbers:
    return np.concatenate([one.values for one in series])


def _is_stacked(series: Sequence[Series]) -> bool:
    return any(one.custom.get("stacking", {}).get("mode") == "normal" for one in series)


def _stack(series: Sequence[Series]) -> list[Numbers]:
    """Give the upper edge of each series, on all times that any of them has."""
    times = np.unique(np.concatenate([one.times for one in series]))
    edges, top = [], np.zeros_like(times)
    for one in series:
        values = np.zeros_like(times)
        values[np.searchsorted(times, one.times)] = np.nan_to_num(one.values)
        top = top + values
        edges.append(top)
    return edges


def _draw_lines(axes: Axes, series: Sequence[Series], box: Box) -> None:
    if _is_stacked(series):
        times = np.unique(np.concatenate([one.times for one in series]))
        below = np.zeros_like(times)
        for one, edge in zip(series, _stack(series), strict=True):
            colour = colour_series(one.name, one.config)
            opacity = one.custom.get("fillOpacity", 60) / 100
            axes.fill_between(times, below, edge, color=colour, alpha=opacity, linewidth=0)
            below = edge
        return
    for one in series:
        colour = colour_series(one.name, one.config)
        if one.custom.get("drawStyle") == "bars":
            _draw_bars(axes, one, colour, box)
        else:
            _draw_line(axes, one, colour)


def _draw_line(axes: Axes, series: Series, colour: str) -> None:
    line = series.custom.get("lineStyle") or {}
    is_dashed = line.get("fill") == "dash"
    axes.plot(
        series.times,
        series.values,
        color=colour,
        linewidth=series.custom.get("lineWidth", 1) * 0.9,
        linestyle=(0, (4, 4)) if is_dashed else "solid",
        zorder=3,
    )
    opacity = series.custom.get("fillOpacity", 0) / 100
    if opacity:
        foot = max(0.0, axes.get_ylim()[0])
        axes.fill_between(
            series.times, foot, series.values, color=colour, alpha=opacity, linewidth=0
        )
    alone = _find_alone(series.values)
    axes.plot(series.times[alone], series.values[alone], ".", color=colour, markersize=3)


def _find_alone(values: Numbers) -> NDArray[np.bool_]:
    """Find points without a neighbour, which no line would show."""
    there = np.isfinite(values)
    before = np.concatenate(([False], there[:-1]))
    after = np.concatenate((there[1:], [False]))
    return there & ~before & ~after


def _draw_bars(axes: Axes, series: Series, colour: str, box: Box) -> None:
    steps = np.diff(series.times)
    start, end = axes.get_xlim()
    widest = 0.6 * float(steps.min()) if steps.size else 0.02 * (end - start)
    width = max(widest, 1.5 * (end - start) / box.width)
    opacity = series.custom.get("fillOpacity", 100) / 100
    axes.bar(series.times, series.values, width, color=colour, alpha=max(opacity, 0.6), linewidth=0)


def _draw_limits(axes: Axes, panel: Json, low: float, high: float) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    if defaults["custom"].get("thresholdsStyle", {}).get("mode", "off") == "off":
        return
    for value, colour in list_lines(defaults):
        if low <= value <= high:
            axes.axhline(value, color=colour, linewidth=1, linestyle=(0, (6, 4)), zorder=2)


def _sort(series: Sequence[Series], legend: Json) -> list[Series]:
    """Put the rows of a legend in order."""
    how = {name: calculation for calculation, name in CALCULATIONS.items()}.get(
        str(legend.get("sortBy"))
    )
    if how is None:
        return list(series)

    def rank(one: Series) -> float:
        value = reduce(one.values, how)
        return -math.inf if math.isnan(value) else value

    return sorted(series, key=rank, reverse=bool(legend.get("sortDesc")))


def _draw_legend(
    canvas: Canvas, box: Box, panel: Json, series: Sequence[Series], rows: int
) -> None:
    columns = {
        CALCULATIONS[calc]: [_write_figure(one, calc) for one in series[:rows]]
        for calc in panel["options"]["legend"].get("calcs") or ()
    }
    widest = {
        head: max(measure(text, LETTERS) for text in (head, *texts)) + 14
        for head, texts in columns.items()
    }
    middle, right = box.top + _ROW / 2, box.right - 4
    canvas.write("Name", box.left + 2, middle, size=LETTERS, colour=FAINT)
    for head in reversed(columns):
        if right - widest[head] < box.left + _NAME:
            break
        canvas.write(head, right, middle, size=LETTERS, colour=FAINT, side="right")
        for place, text in enumerate(columns[head], 1):
            canvas.write(text, right, middle + place * _ROW, size=LETTERS, side="right")
        right -= widest[head]
    for place, one in enumerate(series[:rows], 1):
        line = Box(box.left + 2, middle + place * _ROW - 2, 14, 4)
        canvas.fill(line, colour_series(one.name, one.config), radius=1)
        name = right - box.left - 28
        canvas.write(one.name, box.left + 22, middle + place * _ROW, size=LETTERS, room=name)
    if len(series) > rows:
        height = rows / len(series) * (box.height - _ROW)
        canvas.fill(Box(box.right - 1, box.top + _ROW, 2, height), FAINT, opacity=0.6)


def _write_figure(series: Series, calc: str) -> str:
    value = reduce(series.values, calc)
    if math.isnan(value):
        return ""
    return write_value(value, series.unit, series.config.get("decimals"))
