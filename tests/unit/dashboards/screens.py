"""What must be true of what is seen first, in a window of 1600 x 1000 beside Grafana's docked menu."""

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

# Units of height below the bars of Grafana and two lines of variables: on a picture of 12.4 these
# take 186 of 1000 pixels.
_SCREEN = 21
_MOST = {"stat": 6, "table": 1}
_MOST_GRAPHS = 3
_LEAST_ROWS = 5
_DEVICES = 8  # of a machine; as many ranks
_EACH = frozenset({"device", "rank"})
_MARGIN = 4  # pixels between the end of a title and the room that it has
_LEAST_LETTERS = 14  # pixels
_MOST_WORDS = 2
_TABLE_PADDING = 16
_NAMED = re.compile(r"\{\{\s*(\w+)")
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


def check_empty_words(view: View) -> Faults:
    """A first screen is not full of sentences on what is missing: two words, where none says how."""
    for board in view.boards:
        for panel in (panel for panel in board.panels if not panel.is_closed):
            said = str(panel.defaults.get("noValue", ""))
            is_long = len(said.split()) > _MOST_WORDS or said.startswith("No ")
            if panel.kind != "table" and is_long and not _SAYS_HOW.search(said):
                yield Fault(panel.place, f"says {said!r} on the first screen")


def check_figure_texts(view: View) -> Faults:
    """A figure's texts, which fill the panel, have letters that can be read."""
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
    """A panel is wide enough for its title, and for the fonts of another browser."""
    for _, panel in view.panels:
        width = panel.json["gridPos"]["w"]
        room = measure_title_room(width, has_link=bool(panel.json.get("links")))
        if measure_text(panel.title) > room - _MARGIN:
            yield Fault(panel.place, f"has a title that is cut in {width} columns")


def check_tables(view: View) -> Faults:
    """A table shows five rows or all eight devices, and all of its columns side by side."""
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
    """A column whose width is fixed has room for its head and for the texts of its states."""
    for _, panel in view.panels:
        order = {str(by.get("displayName")) for by in panel.options.get("sortBy") or ()}
        for title, _ in list_columns(panel) if panel.kind == "table" else ():
            width = find_property(panel, title, "custom.width")
            needed = measure_column(title, is_sorted=title in order)
            if width and width < needed:
                yield Fault(panel.place, f"cuts the head {title}: {width} of {needed} pixels")


def check_bands(view: View) -> Faults:
    """A timeline has as many bands at most as can be read: 12 in 8 units of height."""
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
    """Return how many series a query may give; None for any number."""
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
