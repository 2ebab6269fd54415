"""Checks of the positions of panels, and of the queries when a dashboard opens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.unit.dashboards.boards import Board, Panel, Question
from tests.unit.dashboards.findings import Fault, View

Faults = Iterator[Fault]

_COLUMNS = 24
_FIRST_SCREEN = 22  # rows of 30 pixels below the bars of Grafana, at 1440 x 900
_QUERIES = 40


def check_numbers(view: View) -> Faults:
    """Check that every panel and row has a unique number."""
    for board in view.boards:
        headings = [heading["id"] for heading, _ in board.rows if heading]
        counts = Counter([*headings, *(panel.json.get("id") for panel in board.panels)])
        for panel in board.panels:
            if panel.json.get("id") is None or counts[panel.json["id"]] > 1:
                yield Fault(panel.place, f"number {panel.json.get('id')} is not its own")


def check_names(view: View) -> Faults:
    """Check that row and title identify one panel, and that the titles of rows are unique."""
    for board in view.boards:
        places = Counter(panel.place for panel in board.panels)
        yield from (Fault(place, "is there twice") for place, count in places.items() if count > 1)
        titles = Counter(str(heading.get("title", "")) for heading, _ in board.rows)
        for title, count in titles.items():
            if not title or count > 1:
                yield Fault(board.place, f"row {title!r} has no title of its own")


def check_grid(view: View) -> Faults:
    """Check that panels fill their rows without gaps and do not overlap."""
    for board in view.boards:
        bottom = 0
        for heading, panels in board.rows:
            top = heading.get("gridPos", {}).get("y", 0)
            if top < bottom:
                yield Fault(board.place, f"row {heading.get('title')} lies upon the one above")
            yield from _check_row(panels)
            is_open = not heading.get("collapsed")
            bottom = max([top + 1, *(_end(panel) for panel in panels if is_open)])


def _check_row(panels: list[Panel]) -> Faults:
    cells: dict[tuple[int, int], Panel] = {}
    for panel in panels:
        place = panel.json.get("gridPos") or {}
        x, y, width, height = (place.get(key, 0) for key in ("x", "y", "w", "h"))
        if not (width and height) or x + width > _COLUMNS:
            yield Fault(panel.place, f"does not fit into {_COLUMNS} columns: {place}")
        for cell in ((x + dx, y + dy) for dx in range(width) for dy in range(height)):
            if cell in cells:
                yield Fault(panel.place, f"lies upon {cells[cell].place.panel}")
                break
            cells[cell] = panel
    lines = Counter(y for _, y in cells)
    for line in sorted(lines):
        if lines[line] < _COLUMNS:
            last = [panel for (_, y), panel in cells.items() if y == line][-1]
            yield Fault(last.place, f"leaves {_COLUMNS - lines[line]} columns beside it empty")
            return


def _end(panel: Panel) -> int:
    place = panel.json.get("gridPos") or {}
    return int(place.get("y", 0)) + int(place.get("h", 0))


def check_first_screen(view: View) -> Faults:
    """Check that the first screen has a line of stats, the firing alerts, and another panel."""
    for board in view.boards:
        open_panels = [panel for panel in board.panels if not panel.is_closed]
        stats = [panel for panel in open_panels if _is_on_first_line(panel, board)]
        for panel in stats:
            if panel.kind != "stat":
                yield Fault(panel.place, "the first line is for stats")
        if not stats:
            yield Fault(board.place, "its first line has no stats")
        alerts = [panel for panel in open_panels if _asks_firing(panel)]
        if not alerts or _end(alerts[0]) > _FIRST_SCREEN:
            yield Fault(
                board.place, f"no table of firing alerts in the first {_FIRST_SCREEN} units"
            )
        others = [one for one in open_panels if one.kind != "stat" and one not in alerts]
        if not any(_top(panel) < _FIRST_SCREEN for panel in others):
            yield Fault(board.place, "nothing but stats and alerts on the first screen")


def _is_on_first_line(panel: Panel, board: Board) -> bool:
    return _top(panel) == min(map(_top, board.panels))


def _top(panel: Panel) -> int:
    return int((panel.json.get("gridPos") or {}).get("y", 0))


def _asks_firing(panel: Panel) -> bool:
    return panel.kind == "table" and any("ALERTS" in str(one.get("expr")) for one in panel.targets)


def check_cost(view: View) -> Faults:
    """Check that opening a dashboard sends at most 40 queries to Prometheus."""
    for board in view.boards:
        count = count_queries(board)
        if count > _QUERIES:
            yield Fault(board.place, f"asks {count} queries when it opens, over {_QUERIES}")


def count_queries(board: Board) -> int:
    """Count the queries when a dashboard opens: variables, enabled annotations and open rows."""
    return sum(_is_asked_at_once(question) for question in board.questions)


def _is_asked_at_once(question: Question) -> bool:
    if question.kind == "annotation":
        return bool(question.json.get("enable"))
    return question.panel is None or not question.panel.is_closed


def check_times(view: View) -> Faults:
    """Check the refresh interval and the initial time range of each dashboard."""
    for board in view.boards:
        refresh = "1m" if board.uid == "trainvitals-fleet" else "30s"
        since = "now-6h" if board.uid == "trainvitals-run" else "now-1h"
        if board.json.get("refresh") != refresh:
            yield Fault(board.place, f"refresh is {board.json.get('refresh')}, not {refresh}")
        if board.json.get("time") != {"from": since, "to": "now"}:
            yield Fault(board.place, f"shows {board.json.get('time')} first, not {since}")
