"""Bars and sparklines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from trainvitals.overview.picture import Trace

FULL, EMPTY = "█", "░"
STEPS = "▁▂▃▄▅▆▇█"
_LEAST_SHOWN = 0.005  # what would be written as 1%


def draw_bar(ratio: float | None, width: int, style: str) -> Text:
    """Draw a bar; blanks where the ratio is not known.

    Args:
        ratio: What is filled; more than 1 is full.
        width: How many columns.
        style: How the filled part looks.
    """
    if ratio is None or not math.isfinite(ratio):
        return Text(" " * width)
    filled = round(min(1.0, max(0.0, ratio)) * width)
    if ratio >= _LEAST_SHOWN and filled == 0:
        filled = 1
    return Text.assemble((FULL * filled, style), (EMPTY * (width - filled), "dim"))


def draw_gauge(
    ratio: float | None, words: str, width: int, *, words_width: int, style: str
) -> Text:
    """Draw a bar with its number beside it, in as many columns as there are.

    Args:
        ratio: What is filled.
        words: The number.
        width: How many columns both have.
        words_width: How many of them the number has.
        style: How the filled part looks; the number too, where it is a warning.
    """
    room = width - words_width - 1
    loud = style if style not in {"green", "cyan"} else ""
    number = Text(words.rjust(words_width), loud)
    return Text.assemble(draw_bar(ratio, room, style), " ", number) if room > 1 else number


def draw_trace(trace: Trace, width: int, *, low: float, high: float, style: str = "cyan") -> Text:
    """Draw the past as a sparkline; what is not known is a gap.

    Args:
        trace: The values, the oldest first.
        width: How many columns; the newest value is in the last.
        low: What the lowest step stands for.
        high: What the highest stands for.
        style: How it looks.
    """
    values = shrink(trace, width)
    blank = " " * (width - len(values))
    return Text(blank + "".join(_choose_step(value, low, high) for value in values), style)


def shrink(trace: Sequence[float | None], width: int) -> list[float | None]:
    """Give the means of as many equal parts of a trace as there are columns, at most its length."""
    count = min(width, len(trace))
    if count <= 0:
        return []
    edges = [len(trace) * index // count for index in range(count + 1)]
    return [_average(trace[begin:end]) for begin, end in pairwise(edges)]


def find_bounds(trace: Trace) -> tuple[float, float]:
    """Give the least and the greatest value of a trace."""
    known = [value for value in trace if value is not None and math.isfinite(value)]
    return (min(known), max(known)) if known else (0.0, 1.0)


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None


def _choose_step(value: float | None, low: float, high: float) -> str:
    if value is None:
        return " "
    share = (value - low) / (high - low) if high > low else 0.0
    return STEPS[min(len(STEPS) - 1, int(min(1.0, max(0.0, share)) * len(STEPS)))]
