"""The axes of graphs: times below, values in their unit beside."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from docs.build.pictures.canvas import DOTS, measure
from docs.build.pictures.colours import FAINT, GRID
from docs.build.pictures.times import Window
from docs.build.pictures.units import find_scale, write_value

LETTERS: Final = 11.0  # in pixels
_POINTS: Final = 72 / DOTS
_SPANS: Final = (
    *(1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 172_800, 604_800, 1_209_600),
)
_MINUTE, _DAY = 60, 86_400
_PIXELS_PER_TIME: Final = 90
_PIXELS_PER_VALUE: Final = 34


def style(axes: Axes) -> None:
    """Take everything off that Grafana has not."""
    axes.set_facecolor("none")
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=LETTERS * _POINTS, labelcolor=FAINT, pad=4)


def draw_times(axes: Axes, window: Window, pixels: float, *, has_grid: bool = True) -> None:
    """Draw the axis of times, as many as have room."""
    axes.set_xlim(window.start, window.end)
    wanted = window.seconds / max(1.0, pixels / _PIXELS_PER_TIME)
    span = next((one for one in _SPANS if one >= wanted), _SPANS[-1])
    first = math.ceil(window.start / span) * span
    times = np.arange(first, window.end + 1, span)
    form = "%m-%d" if span >= _DAY else "%H:%M:%S" if span < _MINUTE else "%H:%M"
    texts = [datetime.fromtimestamp(at, timezone.utc).strftime(form) for at in times]
    room = measure("00:00", LETTERS) / 2 * window.seconds / pixels
    inside = [(at, text) for at, text in zip(times, texts, strict=True) if at <= window.end - room]
    axes.set_xticks([at for at, _ in inside], [text for _, text in inside])
    if has_grid:
        axes.grid(visible=True, axis="x", color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)


def find_ticks(
    low: float, high: float, unit: str, pixels: float, *, is_whole: bool = False
) -> list[float]:
    """Give round values between two, round in the unit in which they are written."""
    scale = find_scale(max(abs(low), abs(high)), unit)
    count = max(2, int(pixels / _PIXELS_PER_VALUE))
    locator = MaxNLocator(nbins=count, steps=[1, 2, 2.5, 5, 10], integer=is_whole)
    found = np.asarray(locator.tick_values(low / scale, high / scale)) * scale
    margin = 1e-9 * (high - low)
    return [float(one) for one in found if low - margin <= one <= high + margin]


def find_powers(low: float, high: float) -> list[float]:
    """Give the powers of ten between two values, and where these are few, some between them."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for parts in ((1,), (1, 2, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9)):
        found = [part * 10.0**exponent for exponent in exponents for part in parts]
        ticks = [tick for tick in found if low <= tick <= high]
        if len(ticks) > 1:
            return ticks
    return [low, high]


def write_ticks(ticks: Sequence[float], unit: str, decimals: int | None = None) -> list[str]:
    """Write the values of ticks with as few digits as tell them apart."""
    for digits in range(4) if decimals is None else (decimals,):
        texts = [write_value(tick, unit, digits) for tick in ticks]
        finer = [write_value(tick, unit, digits + 3) for tick in ticks]
        if [_read(text) for text in texts] == [_read(text) for text in finer]:
            return texts
    return [write_value(tick, unit, decimals) for tick in ticks]


def _read(text: str) -> float:
    """Give the number that a text begins with."""
    found = re.match(r"-?[\d,.]+", text)
    return float(found[0].replace(",", "")) if found else math.nan


def find_limits(
    low: float, high: float, least: float | None, most: float | None
) -> tuple[float, float]:
    """Give where an axis begins and ends: where the board says, else with some room around."""
    if math.isnan(low):
        low, high = 0.0, 1.0
    room = 0.08 * ((high - low) or abs(high)) or 1.0
    bottom = least if least is not None else max(0.0, low - room) if low >= 0 else low - room
    top = most if most is not None else high + room
    return (bottom, top) if top > bottom else (bottom, bottom + 1.0)
