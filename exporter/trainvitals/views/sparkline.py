"""Draws sparklines for the live page, reports and the terminal: SVG in HTML, blocks in text.

A value of None is drawn as a gap in the line, never as 0; the newest point is on the right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from itertools import groupby, pairwise

from trainvitals.foreign_text import clean_text

HEIGHT = 240  # integers are written faster than fractions, and a tenth of a pixel is invisible
_MARGIN = 15  # keeps a line along an edge at full width
_STEPS = "▁▂▃▄▅▆▇█"


def sparkline_svg(
    points: Sequence[float | None],
    label: str,
    *,
    low: float,
    high: float,
    limit: float | None = None,
    columns: int | None = None,
) -> str:
    """Return a sparkline as an SVG element with the classes `spark`, `trace` and `limit`.

    Args:
        points: The values, the oldest first; if no value is known, the frame contains no line.
        label: The text for screen readers, which is escaped by this function.
        low: The value at the bottom edge.
        high: The value at the top edge.
        limit: The value at which a horizontal line is drawn; if None, no such line is drawn.
        columns: The maximum number of points that fit in the width. If None, the width fits all
            points.
    """
    columns = columns or max(1, len(points))
    bottom, scale = HEIGHT - _MARGIN, (HEIGHT - 2 * _MARGIN) / ((high - low) or 1.0)
    zero = bottom + scale * low
    heights = [
        None
        if value is None
        else zero - scale * value
        if low < value < high
        else _MARGIN
        if value >= high
        else bottom
        for value in points
    ]
    mark = ""
    if limit is not None and low <= limit <= high:
        mark = f'<path class="limit" d="M0 {int(zero - scale * limit)}H{columns}"/>'
    strokes = _draw_strokes(heights, columns - len(points))
    line = f'<path class="trace" d="{strokes}"/>' if strokes else ""
    return (
        f'<svg class="spark" viewBox="0 0 {columns} {HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="{_escape_label(label)}">{mark}{line}</svg>'
    )


def sparkline_text(
    points: Sequence[float | None],
    width: int,
    *,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """Return a sparkline made of block characters, right-aligned in the given number of columns.

    Args:
        points: The values, the oldest first.
        width: The number of columns; each column shows the mean of some consecutive values.
        low: The value of the lowest block; None means the lowest value of the points.
        high: The value of the highest block; None means the highest value of the points.
    """
    means = _average_parts(points, width)
    known = [value for value in points if value is not None and math.isfinite(value)] or [0.0]
    bottom = min(known) if low is None else low
    span = (max(known) if high is None else high) - bottom
    return "".join(_choose_step(value, bottom, span) for value in means).rjust(width)


def _draw_strokes(heights: Sequence[float | None], first: int) -> str:
    """Return an SVG path with a line for each group of adjacent values; a single value is a dash.

    Args:
        heights: The distance of each point from the top; None draws a gap.
        first: The column of the first point.
    """
    if None not in heights:
        return _choose_path(first, len(heights)) % tuple(heights)
    strokes, column = [], first
    for is_gap, stretch in groupby(heights, key=_is_gap):
        values = tuple(stretch)
        if not is_gap:
            strokes.append(_choose_path(column, len(values)) % values)
        column += len(values)
    return "".join(strokes)


@lru_cache(maxsize=1024)
def _choose_path(first: int, count: int) -> str:
    """Return an SVG path with a placeholder for each height, for one fast format call."""
    places = "L".join(f"{column} %d" for column in range(first, first + count))
    return f"M{places}h1" if count == 1 else f"M{places}" if count else ""


@lru_cache(maxsize=1024)
def _escape_label(label: str) -> str:
    return escape(clean_text(label))


def _is_gap(height: float | None) -> bool:
    return height is None


def _average_parts(points: Sequence[float | None], width: int) -> list[float | None]:
    count = min(width, len(points))
    if count <= 0:
        return []
    edges = [len(points) * index // count for index in range(count + 1)]
    return [_average(points[begin:end]) for begin, end in pairwise(edges)]


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None


def _choose_step(value: float | None, low: float, span: float) -> str:
    if value is None:
        return " "
    share = (value - low) / span if span > 0 else 0.0
    return _STEPS[min(len(_STEPS) - 1, int(min(1.0, max(0.0, share)) * len(_STEPS)))]
