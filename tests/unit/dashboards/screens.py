"""Checks of the first screen, in a window of 1600 x 1000 pixels with Grafana's docked menu."""

from __future__ import annotations

import re
from collections.abc import Iterator

from promql_parser import AggregateExpr, BinaryExpr

from grafana.build.sizes import (
    count_bands,
    count_table_rows,
    measure_column,
    measure_figure,
    measure_panel,
    measure_text,
    measure_title_room,
)
from tests.support.promql import Node, children
from tests.unit.dashboards.boards import Board, Panel, Question
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import parse
from tests.unit.dashboards.rendering import find_property, list_columns

Faults = Iterator[Fault]

# Grid units of height below Grafana's bars and two lines of variables, which take 186 of 1000
# pixels in Grafana 12.4.
_SCREEN = 21
_MOST = {"stat": 6, "table": 1}
_MOST_GRAPHS = 3
_LEAST_ROWS = 5
_DEVICES = 8  # the devices, and also the ranks, of a machine
_EACH = frozenset({"device", "rank"})
_MARGIN = 4  # pixels to spare after a title
_LEAST_LETTERS = 14  # pixels
_MOST_WORDS = 2
_TABLE_PADDING = 16
_NAMED = re.compile(r"\{\{\s*(\w+)")
_SAYS_HOW = re.compile(r"`.+`|docs/\w+\.md")  # a command, a file or a page


def check_screens(view: View) -> Faults:
    """Check that only six stats, one table and three graphs are open, all on the first screen."""
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
    """Check that a text for missing data on the first screen says how to get the data."""
    for board in view.boards:
        shown = [panel for panel in board.panels if not panel.is_closed]
        lines = [str(panel.defaults.get("noValue", "")) for panel in shown]
        if not any(map(_SAYS_HOW.search, lines)):
            yield Fault(board.place, "has no line on how to have what is missing")


def check_empty_words(view: View) -> Faults:
    """Check that texts for missing data on the first screen are short or say what to do."""
    for board in view.boards:
        for panel in (panel for panel in board.panels if not panel.is_closed):
            said = str(panel.defaults.get("noValue", ""))
            is_long = len(said.split()) > _MOST_WORDS or said.startswith("No ")
            if panel.kind != "table" and is_long and not _SAYS_HOW.search(said):
                yield Fault(panel.place, f"says {said!r} on the first screen")


def check_figure_texts(view: View) -> Faults:
    """Check that the texts of a stat, which are scaled to the panel, remain legible."""
    for _, panel in view.panels:
        if panel.kind != "stat":
            continue
        shown = [one for one in panel.defaults.get("mappings") or () if one.get("type") == "value"]
        texts = [str(panel.defaults.get("noValue", ""))]
        texts += [str(two.get("text", "")) for one in shown for two in one["options"].values()]
        for text in filter(None, texts):
            height = measure_figure(text, panel.json["gridPos"]["w"])
            if height < _LEAST_LETTERS:
                yield Fault(panel.place, f"writes {text!r} in letters of {height:.0f} pixels")


def check_titles(view: View) -> Faults:
    """Check that a panel is wide enough for its title, with a margin for other browsers' fonts."""
    for _, panel in view.panels:
        width = panel.json["gridPos"]["w"]
        room = measure_title_room(width, has_link=bool(panel.json.get("links")))
        if measure_text(panel.title) > room - _MARGIN:
            yield Fault(panel.place, f"has a title that is cut in {width} columns")


def check_tables(view: View) -> Faults:
    """Check that a table has room for five rows, or eight for devices, and for all its columns."""
    for _, panel in view.panels:
        if panel.kind != "table":
            continue
        place = panel.json["gridPos"]
        is_of_each = bool(_EACH & set(panel.renamed)) and "alertname" not in panel.renamed
        least = _DEVICES if is_of_each or _EACH & panel.hidden else _LEAST_ROWS
        if count_table_rows(place["h"]) < least:
            yield Fault(panel.place, f"shows {count_table_rows(place['h']):.1f} rows, not {least}")
        needed = sum(_measure_column(panel, title) for title, _ in list_columns(panel))
        if needed > measure_panel(place["w"]) - _TABLE_PADDING:
            yield Fault(panel.place, f"has columns of {needed} pixels, which are scrolled or cut")


def check_heads(view: View) -> Faults:
    """Check that a column with a fixed width is wide enough for its heading."""
    for _, panel in view.panels:
        order = {str(by.get("displayName")) for by in panel.options.get("sortBy") or ()}
        for title, _ in list_columns(panel) if panel.kind == "table" else ():
            width = find_property(panel, title, "custom.width")
            needed = measure_column(title, is_sorted=title in order)
            if width and width < needed:
                yield Fault(panel.place, f"cuts the head {title}: {width} of {needed} pixels")


def check_bands(view: View) -> Faults:
    """Check that a state timeline has a limited number of bands that its height can show."""
    for board, panel in view.panels:
        if panel.kind != "state-timeline":
            continue
        questions = [one for one in board.questions if one.panel is panel]
        counts = [_count_bands(question, board) for question in questions]
        room = count_bands(panel.json["gridPos"]["h"])
        if None in counts:
            yield Fault(panel.place, "may have any number of bands")
        elif (most := sum(filter(None, counts))) > room:
            yield Fault(panel.place, f"has up to {most} bands where {room} can be read")


def _count_bands(question: Question, board: Board) -> int | None:
    """Return the largest number of series that a query may return; None if unlimited."""
    named = set(_NAMED.findall(str(question.json.get("legendFormat"))))
    if not named:
        return 1
    node = parse(question, board)
    most = None if node is None else _count_series(node)
    return _DEVICES if most is None and named == {"kind", "device"} else most


def _count_series(node: Node) -> int | None:
    if isinstance(node, AggregateExpr) and str(node.op) in ("topk", "bottomk"):
        return int(children(node)[0].val) if node.modifier is None else None
    if isinstance(node, BinaryExpr) and str(node.op) == "and":
        return _count_series(children(node)[1])
    if isinstance(node, BinaryExpr) and str(node.op) == "or":
        counts = [_count_series(child) for child in children(node)]
        return None if None in counts else max(filter(None, counts))
    if isinstance(node, AggregateExpr) and node.modifier is None:
        return 1
    inner = [_count_series(child) for child in children(node)]
    known = [one for one in inner if one is not None]
    return known[0] if len(known) == 1 else None


def _measure_column(panel: Panel, title: str) -> int:
    width = find_property(panel, title, "custom.width")
    return int(width or find_property(panel, title, "custom.minWidth") or 0)
