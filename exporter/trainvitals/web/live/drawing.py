"""Sparklines and bars, as SVG: no style of their own, and words for those who do not see them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from trainvitals.overview.picture import TRACE_POINTS, Tone, Trace
from trainvitals.web.live.markup import text

HEIGHT = 240  # whole numbers are quicker written than fractions, and nobody sees a tenth of a pixel
_ROOM = 15  # so that a line along an edge keeps its whole width


def sparkline(
    trace: Trace,
    label: str,
    write: Callable[[float], str],
    *,
    low: float,
    high: float,
    limit: float | None = None,
) -> str:
    """Draw a trace; a gap is a gap.

    Args:
        trace: What to draw; one without a point is drawn as an empty frame.
        label: What it is, plain text.
        write: Writes a value, plain text.
        low: The value at the bottom.
        high: The value at the top.
        limit: Where a line is drawn beside; None for none.
    """
    known = [point for point in trace if point is not None]
    span = high - low if high > low else 1.0
    line = ""
    if limit is not None and low <= limit <= high:
        (y,) = _place((limit,), low, span)
        line = f'<path class="limit" d="M0 {y}H{TRACE_POINTS}"/>'
    paths = f'<path class="trace" d="{_draw(trace, low, span)}"/>' if known else ""
    words = _describe(known, label, write, limit)
    return (
        f'<svg class="spark" viewBox="0 0 {TRACE_POINTS} {HEIGHT}" preserveAspectRatio="none"'
        f' role="img" aria-label="{text(words)}">{line}{paths}</svg>'
    )


def bar(ratio: float | None, label: str, *, tone: Tone = "busy", limit: float | None = None) -> str:
    """Draw how much of something is used or done.

    Args:
        ratio: 0 to 1; None for an empty frame.
        label: What it is, plain text.
        tone: Its colour.
        limit: Where a line is drawn, 0 to 1; None for none.
    """
    words = f"{label}: unknown" if ratio is None else f"{label}: {100 * ratio:.0f} %"
    width = 100 * min(1.0, max(0.0, ratio or 0.0))
    mark = f'<rect class="mark" x="{100 * limit:.1f}" width=".6" height="6"/>' if limit else ""
    return (
        f'<svg class="bar {tone}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img"'
        f' aria-label="{text(words)}"><rect class="ground" width="100" height="6"/>'
        f'<rect class="filled" width="{width:.1f}" height="6"/>{mark}</svg>'
    )


def _describe(
    known: list[float], label: str, write: Callable[[float], str], limit: float | None
) -> str:
    if not known:
        return f"{label}: no history yet"
    words = f"{label}, last 15 minutes: {write(min(known))} to {write(max(known))}"
    return words if limit is None else f"{words}, limit {write(limit)}"


def _draw(trace: Trace, low: float, span: float) -> str:
    """Give a path with a stroke for each stretch without a gap; one point alone is a short dash."""
    first = TRACE_POINTS - len(trace)
    points = list(enumerate(_place(trace, low, span), first))
    strokes = []
    for is_gap, stretch in groupby(points, key=_is_gap) if None in trace else ((False, points),):
        if not is_gap:
            (x, y), *others = stretch
            rest = " ".join([f"{at} {height}" for at, height in others])
            strokes.append(f"M{x} {y}L{rest}" if rest else f"M{x} {y}h1")
    return "".join(strokes)


def _is_gap(point: tuple[int, int | None]) -> bool:
    return point[1] is None


def _place(values: Trace, low: float, span: float) -> list[int | None]:
    """Give how far from the top each value stands; None for None."""
    bottom, scale = HEIGHT - _ROOM, (HEIGHT - 2 * _ROOM) / span
    high = low + span
    return [
        None
        if value is None
        else bottom
        if value <= low
        else _ROOM
        if value >= high
        else int(bottom - scale * (value - low))
        for value in values
    ]
