"""What must be true of what is seen first, in a window of 1600 x 1000 beside Grafana's docked menu."""

from __future__ import annotations

import re
from collections.abc import Iterator

from grafana.build.sizes import count_table_rows, measure_panel, measure_text, measure_title_room
from tests.unit.dashboards.boards import Panel
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.rendering import find_property, list_columns

Faults = Iterator[Fault]

_SCREEN = 20  # units of height below the bars of Grafana and two lines of variables
_MOST = {"stat": 6, "table": 1}
_MOST_GRAPHS = 3
_LEAST_ROWS = 4
_TABLE_PADDING = 16
_SAYS_HOW = re.compile(r"`.+`|docs/\w+\.md")  # a command, a file or a page


def check_screens(view: View) -> Faults:
    """What is open is the first screen: six figures, one table and three graphs at most."""
    for board in view.boards:
        shown = [panel for panel in board.panels if not panel.is_closed]
        kinds = [panel.kind if panel.kind in _MOST else "graph" for panel in shown]
        for kind, most in {**_MOST, "graph": _MOST_GRAPHS}.items():
            if kinds.count(kind) > most:
                yield Fault(board.place, f"opens with {kinds.count(kind)} panels: {kind}")
        for panel in shown:
            place = panel.json["gridPos"]
            if place["y"] + place["h"] > _SCREEN:
                yield Fault(panel.place, "is open and ends below the first screen")


def check_empty_screens(view: View) -> Faults:
    """Where there is nothing that the board is about, one line of the first screen says how to have it."""
    for board in view.boards:
        shown = [panel for panel in board.panels if not panel.is_closed]
        lines = [str(panel.defaults.get("noValue", "")) for panel in shown]
        if not any(map(_SAYS_HOW.search, lines)):
            yield Fault(board.place, "has no line on how to have what is missing")


def check_titles(view: View) -> Faults:
    """A panel is wide enough for its title."""
    for _, panel in view.panels:
        width = panel.json["gridPos"]["w"]
        room = measure_title_room(width, has_link=bool(panel.json.get("links")))
        if measure_text(panel.title) > room:
            yield Fault(panel.place, f"has a title that is cut in {width} columns")


def check_tables(view: View) -> Faults:
    """A table shows four rows and more, and all of its columns side by side."""
    for _, panel in view.panels:
        if panel.kind != "table":
            continue
        place = panel.json["gridPos"]
        if count_table_rows(place["h"]) < _LEAST_ROWS:
            yield Fault(panel.place, f"shows {count_table_rows(place['h']):.1f} rows")
        needed = sum(_measure_column(panel, title) for title, _ in list_columns(panel))
        if needed > measure_panel(place["w"]) - _TABLE_PADDING:
            yield Fault(panel.place, f"has columns of {needed} pixels, which are scrolled or cut")


def _measure_column(panel: Panel, title: str) -> int:
    width = find_property(panel, title, "custom.width")
    return int(width or find_property(panel, title, "custom.minWidth") or 0)
