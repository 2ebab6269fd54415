"""A whole board: its title, its variables, its rows, and what the picture is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, Final

from docs.build.pictures import gauges, graphs, heatmaps, sheets, stats, timelines
from docs.build.pictures.asking import COLUMN_PIXELS, GAP_PIXELS, PAGE_PIXELS, Load
from docs.build.pictures.canvas import Box, Canvas, measure, write_note
from docs.build.pictures.colours import BAR, EDGE, FAINT, PANEL, TEXT, name_colour

Json = Mapping[str, Any]
Draw = Callable[[Canvas, Box, Json, Load], None]

KINDS: Mapping[str, Draw] = MappingProxyType(
    {
        "stat": stats.draw,
        "timeseries": graphs.draw,
        "table": sheets.draw,
        "state-timeline": timelines.draw,
        "bargauge": gauges.draw,
        "heatmap": heatmaps.draw,
    }
)
CAPTION: Final = (
    "Not Grafana itself: the project's own rendering of the board, from real query results"
    " (docs/build/pictures)."
)

_UNIT: Final = 38  # pixels of a unit of height, a gap included
_MARGIN: Final = 16
_HEAD: Final = 48
_LINE: Final = 40
_TITLE: Final = 30
_FOOT: Final = 30


def draw_board(load: Load, opened: Collection[str] = ()) -> Canvas:
    """Draw a board with the answers that it got."""
    placed = list(arrange(load.board, opened))
    bottom = max(box.bottom for box, _ in placed)
    controls = list(_place_controls(load))
    top = _HEAD + max((box.bottom for box, _, _ in controls), default=0) + 8
    canvas = Canvas(PAGE_PIXELS, top + bottom + _FOOT)
    _draw_head(canvas, load)
    for box, label, value in controls:
        _draw_control(canvas, Box(box.left, box.top + _HEAD, box.width, box.height), label, value)
    for box, panel in placed:
        place = Box(box.left, box.top + top, box.width, box.height)
        if panel["type"] == "row":
            _draw_heading(canvas, place, panel, is_closed=_is_closed(panel, opened))
        else:
            _draw_panel(canvas, place, panel, load)
    canvas.write(CAPTION, _MARGIN, top + bottom + _FOOT / 2 - 4, size=12, colour=FAINT)
    return canvas


def arrange(board: Json, opened: Collection[str] = ()) -> Iterator[tuple[Box, Json]]:
    """Give every heading and panel with its place, what is in closed rows left out."""
    further = 0
    for entry in board["panels"]:
        yield _place(entry, further), entry
        if entry["type"] == "row" and entry["collapsed"] and not _is_closed(entry, opened):
            yield from ((_place(panel, further), panel) for panel in entry["panels"])
            ends = (panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in entry["panels"])
            further += max(ends) - entry["gridPos"]["y"] - 1


def _is_closed(row: Json, opened: Collection[str]) -> bool:
    return bool(row["collapsed"]) and row["title"] not in opened


def _place(entry: Json, further: int) -> Box:
    grid = entry["gridPos"]
    return Box(
        _MARGIN + grid["x"] * COLUMN_PIXELS,
        (grid["y"] + further) * _UNIT,
        grid["w"] * COLUMN_PIXELS - GAP_PIXELS,
        grid["h"] * _UNIT - GAP_PIXELS,
    )


def _draw_head(canvas: Canvas, load: Load) -> None:
    canvas.fill(Box(0, 0, PAGE_PIXELS, _HEAD - 8), PANEL)
    title, middle = load.board["title"], (_HEAD - 8) / 2
    canvas.write(title, _MARGIN, middle, size=15, weight="bold")
    left = _MARGIN + measure(title, 15, "bold") + 16
    canvas.write(load.board["description"], left, middle, size=12, colour=FAINT, room=820)
    ends = [datetime.fromtimestamp(at, timezone.utc) for at in (load.window.start, load.window.end)]
    span = f"{ends[0]:%Y-%m-%d %H:%M} to {ends[1]:%H:%M} UTC"
    canvas.write(span, PAGE_PIXELS - _MARGIN, middle, size=12, side="right")


def _place_controls(load: Load) -> Iterator[tuple[Box, str, str]]:
    """Give the pickers of variables and the switches of annotations, on as many lines as needed."""
    variables = load.board["templating"]["list"]
    shown = [one for one in variables if one["type"] != "datasource" and not one.get("hide")]
    pairs = [(one["label"], load.choices[one["name"]].describe()) for one in shown]
    switches = [one for one in load.board["annotations"]["list"] if not one.get("hide")]
    pairs += [(one["name"], "on" if one["enable"] else "off") for one in switches]
    left, top = float(_MARGIN), 0.0
    for label, value in pairs:
        width = measure(label, 12) + min(measure(value, 12), 260) + 40
        if left + width > PAGE_PIXELS - _MARGIN:
            left, top = float(_MARGIN), top + _LINE
        yield Box(left, top, width, _LINE - 8), label, value
        left += width + 8


def _draw_control(canvas: Canvas, box: Box, label: str, value: str) -> None:
    name = measure(label, 12) + 18
    canvas.frame(box, PANEL, EDGE)
    canvas.fill(Box(box.left, box.top, name, box.height), BAR, radius=2)
    middle = box.top + box.height / 2
    canvas.write(label, box.left + 8, middle, size=12, colour=TEXT)
    colour = name_colour("green") if value == "on" else FAINT if value == "off" else TEXT
    canvas.write(value, box.left + name + 8, middle, size=12, colour=colour, room=264)


def _draw_heading(canvas: Canvas, box: Box, row: Json, *, is_closed: bool) -> None:
    left, middle = box.left + 4, box.top + box.height / 2
    if is_closed:
        canvas.shape([(left, middle - 5), (left + 7, middle), (left, middle + 5)], TEXT)
    else:
        canvas.shape([(left - 1, middle - 3), (left + 9, middle - 3), (left + 4, middle + 4)], TEXT)
    width = canvas.write(row["title"], left + 18, middle, size=14, weight="bold")
    if is_closed:
        plural = "" if len(row["panels"]) == 1 else "s"
        count = f"({len(row['panels'])} panel{plural}, closed)"
        canvas.write(count, left + 26 + width, middle, size=12, colour=FAINT)


def _draw_panel(canvas: Canvas, box: Box, panel: Json, load: Load) -> None:
    """Draw a panel.

    Raises:
        ValueError: It is of a kind that is not known here.
    """
    if panel["type"] not in KINDS:
        raise ValueError(f"panel {panel['title']!r} is of the kind {panel['type']!r}")
    canvas.frame(box, PANEL, EDGE)
    room = box.width - 34
    middle = box.top + _TITLE / 2 + 1
    width = canvas.write(panel["title"], box.left + 9, middle, size=12.5, weight="bold", room=room)
    if panel.get("description"):
        mark = Box(box.left + width + 14, middle - 6, 12, 12)
        canvas.frame(mark, PANEL, FAINT, radius=6)
        canvas.write("i", mark.left + 6, middle, size=9, colour=FAINT, side="center")
    answers = load.panels.get(panel["id"], ())
    inside = box.shrink(8, _TITLE, 8, 8)
    errors = [answer.error for answer in answers if answer.error]
    if errors:
        write_note(canvas, inside, errors[0][:300], name_colour("red"))
    elif panel["type"] == "timeseries" and not any(answer.series for answer in answers):
        write_note(canvas, inside, str(panel["fieldConfig"]["defaults"].get("noValue")))
    else:
        KINDS[panel["type"]](canvas, inside, panel, load)
