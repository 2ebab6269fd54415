"""What is drawn over graphs: alerts as regions, starts and deaths as moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes

from docs.build.pictures.asking import Answer, Load
from docs.build.pictures.colours import name_colour
from docs.build.pictures.fields import name_series

Json = Mapping[str, Any]

_SHADE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that is drawn over every graph.

    Attributes:
        start: In seconds since 1970.
        end: The same as `start` for a moment.
        colour: Its colour.
        title: What it is called.
    """

    start: float
    end: float
    colour: str
    title: str


def list_events(load: Load) -> list[Event]:
    """Give the events of a board, each once."""
    found = (event for answer in load.annotations for event in _read(answer))
    shown = (one for one in found if one.end >= load.window.start and one.start <= load.window.end)
    return list(dict.fromkeys(shown))


def _read(answer: Answer) -> Iterator[Event]:
    annotation, step = answer.query.target, answer.query.pace.step
    colour = name_colour(annotation["iconColor"])
    for series in answer.series:
        title = name_series(annotation.get("titleFormat") or "", series["metric"])
        if annotation.get("useValueForTime"):
            moments = dict.fromkeys(float(value) // 1000 for _, value in series["values"])
            yield from (Event(at, at, colour, title) for at in moments)
            continue
        times = [float(at) for at, value in series["values"] if float(value) > 0]
        for start, end in _join(times, step):
            yield Event(start, end, colour, title)


def _join(times: list[float], step: float) -> Iterator[tuple[float, float]]:
    """Give the spans in which times are at most a step apart."""
    start = 0
    for at in range(1, len(times) + 1):
        if at == len(times) or times[at] > times[at - 1] + step:
            yield times[start], times[at - 1]
            start = at


def draw_events(axes: Axes, load: Load) -> None:
    """Draw them over a graph as Grafana does: lines where they begin and end, a shade between."""
    across = axes.get_xaxis_transform()
    for event in list_events(load):
        for at in {event.start, event.end}:
            axes.axvline(at, color=event.colour, linewidth=0.6, linestyle=(0, (4, 3)), zorder=4)
        if event.end > event.start:
            axes.axvspan(
                event.start, event.end, color=event.colour, alpha=_SHADE, linewidth=0, zorder=0
            )
        span, width = (event.start, event.end), 3 if event.end > event.start else 0
        mark = "" if width else "^"
        axes.plot(
            span,
            (0, 0),
            mark,
            color=event.colour,
            linewidth=width,
            markersize=4,
            transform=across,
            clip_on=False,
            solid_capstyle="butt",
            zorder=5,
        )
