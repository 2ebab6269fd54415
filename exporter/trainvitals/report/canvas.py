"""The ground that pictures of a report are drawn on: slots of time, an axis of values, lines.

SVG without script, with a title for whoever cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from trainvitals.report.amounts import read_clock
from trainvitals.report.figures import Report
from trainvitals.report.points import Points

_WIDTH, _HEIGHT = 400, 190
LEFT, _RIGHT, TOP, _BOTTOM = 36, 8, 10, 26
ROOM, DEPTH = _WIDTH - LEFT - _RIGHT, _HEIGHT - TOP - _BOTTOM
LINES = 4
_MOST_LABELS = 8
_ROUND = (1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0)
_NEARLY = 0.999

Spot = tuple[float, float]
"""Where something is drawn: to the right, and down."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How a value is written.

    Attributes:
        unit: What one on the axis is in base units.
        name: What it is called beside the title.
        write: How a single value is written in full.
    """

    unit: float
    name: str
    write: Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Slot:
    """A stretch on the time axis: an hour of a day, or a day of a week.

    Attributes:
        key: What tells it apart.
        label: What stands below it.
        name: What it is called in full.
    """

    key: str
    label: str
    name: str


def list_slots(report: Report) -> list[Slot]:
    """Give the hours of a day, or the days of a week, those without figures included."""
    slots: dict[str, Slot] = {}
    for moment in range(int(report.begin), int(report.planned_end), 3600):
        slot = _find_slot(report, moment)
        slots.setdefault(slot.key, slot)
    return list(slots.values())


def name_slot(report: Report) -> str:
    """Say what a slot is: an hour or a day."""
    return "hour" if report.kind == "daily" else "day"


def _find_slot(report: Report, moment: float) -> Slot:
    when = read_clock(report, moment)
    if report.kind == "daily":
        return Slot(f"{when:%d %H %z}", f"{when:%H}", f"{when:%H:%M}")
    return Slot(f"{when:%m-%d}", f"{when:%a}", f"{when:%A, %Y-%m-%d}")


def gather(report: Report, points: Points) -> dict[str, list[float]]:
    """Give the values of a course by the slot in which they lie."""
    found: dict[str, list[float]] = {}
    for moment, value in points:
        found.setdefault(_find_slot(report, moment - 1).key, []).append(value)
    return found


def find_values(
    report: Report, slots: Sequence[Slot], points: Points, join: Callable[[Sequence[float]], float]
) -> list[float | None]:
    """Join the values of each slot; None where it has none."""
    gathered = gather(report, points)
    return [join(gathered[slot.key]) if slot.key in gathered else None for slot in slots]


def place_slot(slots: Sequence[Slot], place: int) -> float:
    """Give the middle of a slot on the axis of time."""
    return LEFT + (place + 0.5) * ROOM / len(slots)


def rise(ratio: float) -> float:
    """Give the height of a share of the axis of values."""
    return TOP + DEPTH * (1 - ratio)


def dot_spots(
    slots: Sequence[Slot], spots: Iterable[Spot | None], words: Iterable[str | None]
) -> str:
    """Draw a dot for each spot, which says what it is."""
    return "".join(
        f'<circle class="dot" cx="{spot[0]:.1f}" cy="{spot[1]:.1f}" r="2.5">'
        f"<title>{escape(f'{slot.name}: {text}')}</title></circle>"
        for slot, spot, text in zip(slots, spots, words, strict=True)
        if spot is not None
    )


def mark_axis(top: float, scale: Scale) -> list[tuple[float, str]]:
    """Give the lines of an axis from 0: how high each is, and what it says."""
    return [(part / LINES, f"{top * part / LINES / scale.unit:.3g}") for part in range(LINES + 1)]


def connect(spots: Iterable[Spot | None]) -> str:
    """Draw a line through spots, with a gap where one is not known."""
    words, is_drawing = [], False
    for spot in spots:
        if spot is not None:
            words.append(f"{'L' if is_drawing else 'M'}{spot[0]:.1f} {spot[1]:.1f}")
        is_drawing = spot is not None
    return f'<path class="line" d="{"".join(words)}"/>'


def frame(
    title: str,
    slots: Sequence[Slot],
    marks: Iterable[tuple[float, str]],
    content: str,
    names: str = "",
) -> str:
    """Put a title, an axis of time and one of values around what was drawn."""
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{_WIDTH - _RIGHT}" y1="{rise(ratio):.1f}"'
        f' y2="{rise(ratio):.1f}"/><text class="axis" x="{LEFT - 5}" y="{rise(ratio) + 3.5:.1f}"'
        f' text-anchor="end">{escape(words)}</text>'
        for ratio, words in marks
    )
    each = max(1, math.ceil(len(slots) / _MOST_LABELS))
    labels = "".join(
        f'<text class="axis" x="{place_slot(slots, place):.1f}" y="{_HEIGHT - 9}"'
        f' text-anchor="middle">{escape(slot.label)}</text>'
        for place, slot in enumerate(slots)
        if place % each == 0
    )
    below = f'<div class="names">{names}</div>' if names else ""
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{lines}{labels}{content}</svg>{below}</figure>"
    )


def round_up(value: float, scale: Scale) -> float:
    """Give the top of an axis: the next round number above a value."""
    if value <= 0:
        return 0.0
    scaled = value / scale.unit
    power = 10.0 ** math.floor(math.log10(scaled))
    top = next(step * power for step in _ROUND if step * power >= scaled * _NEARLY)
    return top * scale.unit
