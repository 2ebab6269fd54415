"""Tables: a row for each thing, cells that are coloured or filled by how good they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from docs.build.pictures.asking import Load
from docs.build.pictures.canvas import Box, Canvas, Side, write_note
from docs.build.pictures.colours import (
    BAR,
    EDGE,
    FAINT,
    GRID,
    LINK,
    TEXT,
    colour_value,
    ink_on,
    map_value,
    name_colour,
)
from docs.build.pictures.rows import Cell, Column, read_sheet
from docs.build.pictures.units import write_value

Json = Mapping[str, Any]

_ROW: Final = 30.0
_LETTERS: Final = 11.5
_LEAST: Final = 70.0  # pixels of a column
_SLIVER: Final = 30.0  # narrower, nothing can be read


def draw(canvas: Canvas, box: Box, panel: Json, load: Load) -> None:
    """Draw a panel of the kind `table`."""
    sheet = read_sheet(panel, load.panels[panel["id"]])
    if not sheet.rows:
        write_note(canvas, box, str(panel["fieldConfig"]["defaults"].get("noValue") or "No data"))
        return
    shown = max(1, int((box.height - _ROW) / _ROW))
    left = box.left
    for column, width in zip(sheet.columns, _share(sheet.columns, box.width), strict=True):
        if left + _SLIVER > box.right:  # what is beyond the edge is reached by scrolling
            break
        place = Box(left, box.top, min(width, box.right - left), box.height)
        cells = [row.get(column.title) for row in sheet.rows]
        _draw_column(canvas, place, column, cells, shown, load.window.end)
        left += width
    for line in range(min(shown, len(sheet.rows)) + 1):
        canvas.fill(Box(box.left, box.top + (line + 1) * _ROW - 1, box.width, 1), GRID)
    if len(sheet.rows) > shown:
        height = shown / len(sheet.rows) * (box.height - _ROW)
        canvas.fill(Box(box.right - 3, box.top + _ROW, 3, height), FAINT, radius=1, opacity=0.7)


def _draw_column(
    canvas: Canvas, box: Box, column: Column, cells: Sequence[Cell], shown: int, now: float
) -> None:
    side = _side(column, cells)
    edge = box.left + 8 if side == "left" else box.right - 8
    canvas.write(
        column.title,
        edge,
        box.top + _ROW / 2,
        size=_LETTERS,
        colour=FAINT,
        side=side,
        room=box.width - 12,
    )
    for place, cell in enumerate(cells[:shown]):
        line = Box(box.left, box.top + (place + 1) * _ROW, box.width, _ROW)
        _draw_cell(canvas, line, column, cell, side, now)


def _share(columns: Sequence[Column], width: float) -> list[float]:
    """Give each column its own width, and the others what is left in equal parts."""
    own = [(column.config.get("custom") or {}).get("width") for column in columns]
    left = width - sum(one for one in own if one)
    open_ = sum(1 for one in own if not one)
    least = [(column.config.get("custom") or {}).get("minWidth") or _LEAST for column in columns]
    return [
        float(one or max(low, left / max(1, open_))) for one, low in zip(own, least, strict=True)
    ]


def _side(column: Column, cells: Sequence[Cell]) -> Side:
    align = (column.config.get("custom") or {}).get("align", "auto")
    if align != "auto":
        return align  # type: ignore[no-any-return]  # of the board's JSON
    return "right" if any(isinstance(cell, float) for cell in cells) else "left"


def _draw_cell(
    canvas: Canvas, box: Box, column: Column, cell: Cell, side: Side, now: float
) -> None:
    config = column.config
    if cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell)):
        return
    look = (config.get("custom") or {}).get("cellOptions") or {"type": "auto"}
    text, colour = _describe(cell, config, now)
    ink = LINK if config.get("links") else TEXT
    if look["type"] == "color-background":
        canvas.fill(box.shrink(0, 0, 0, 1), colour)
        ink = ink_on(colour)
    elif look["type"] == "color-text":
        ink = colour
    elif look["type"] == "gauge" and isinstance(cell, float):
        _draw_gauge(canvas, box, cell, config, text, colour)
        return
    edge = box.left + 8 if side == "left" else box.right - 8
    middle = box.top + box.height / 2
    canvas.write(text, edge, middle, size=_LETTERS, colour=ink, side=side, room=box.width - 12)


def _describe(cell: float | str, config: Json, now: float) -> tuple[str, str]:
    """Give the text and the colour of a cell."""
    mapped = map_value(cell, config)
    if isinstance(cell, str):
        steps = (config.get("thresholds") or {}).get("steps") or [{"color": "text"}]
        return mapped.text or cell, mapped.colour or name_colour(steps[0]["color"])
    text = mapped.text
    if text is None:
        text = write_value(cell, str(config.get("unit") or ""), config.get("decimals"), now=now)
    return text, colour_value(cell, config)


def _draw_gauge(
    canvas: Canvas, box: Box, value: float, config: Json, text: str, colour: str
) -> None:
    low, high = config.get("min", 0), config.get("max", 1)
    track = box.shrink(8, 7, 62, 8)
    share = min(1.0, max(0.0, (value - low) / ((high - low) or 1)))
    canvas.fill(track, BAR)
    canvas.fill(Box(track.left, track.top, track.width * share, track.height), colour, opacity=0.85)
    canvas.fill(Box(track.right, track.top, 1, track.height), EDGE)
    middle = box.top + box.height / 2
    canvas.write(text, box.right - 8, middle, size=_LETTERS, colour=colour, side="right", room=52)
