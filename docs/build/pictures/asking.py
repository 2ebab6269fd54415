"""What a board asks Prometheus when it opens, as Grafana asks it.

First the variables, one after the other; then annotations and the queries of all panels whose row
is open, six at a time, as many as a browser has connections. A query over time has a point for each
pixel of its panel at most, on round times; one of now asks for the end of the range.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from docs.build.pictures.prometheus import AskingError, Prometheus, Request, write_request
from docs.build.pictures.times import Pace, Window, find_pace, read_duration
from docs.build.pictures.variables import Choice, choose, write_variables

Json = Mapping[str, Any]

PAGE_PIXELS: Final = 1440
GAP_PIXELS: Final = 8
COLUMN_PIXELS: Final = 59  # a gap included
AT_ONCE: Final = 6


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel or an annotation, with all variables written in.

    Attributes:
        board: The uid of its board.
        place: What asks it: row and title of a panel, or the name of an annotation.
        panel: The number of its panel; 0 for an annotation.
        target: The JSON of the query or the annotation.
        request: What Prometheus is asked.
        pace: How it goes through the time range.
    """

    board: str
    place: str
    panel: int
    target: Json
    request: Request
    pace: Pace


@dataclass(frozen=True, slots=True)
class Answer:
    """What Prometheus said to a query.

    Attributes:
        query: The query.
        series: The results, as Prometheus gives them.
        error: Why there are none; empty: they are here.
        seconds: How long it took.
    """

    query: Query
    series: Sequence[Json]
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What a board got when it opened.

    Attributes:
        board: Its JSON.
        window: The time range.
        choices: What is chosen for its variables.
        annotations: What is drawn over graphs.
        panels: The answers by the number of the panel, in the order of its queries.
        seconds: How long all took together.
        variable_seconds: How long each question for the values of a variable took.
    """

    board: Json
    window: Window
    choices: Mapping[str, Choice]
    annotations: Sequence[Answer]
    panels: Mapping[int, Sequence[Answer]]
    seconds: float
    variable_seconds: Sequence[float]

    @property
    def answers(self) -> list[Answer]:
        """All answers, those of annotations first."""
        return [*self.annotations, *(one for several in self.panels.values() for one in several)]


def open_board(
    board: Json,
    server: Prometheus,
    window: Window,
    *,
    chosen: Mapping[str, Sequence[str]] | None = None,
    opened: Collection[str] = (),
) -> Load:
    """Ask what a board asks.

    Args:
        board: Its JSON.
        server: Whom.
        window: The time range.
        chosen: What is chosen for its variables by hand.
        opened: The titles of closed rows that are opened.
    """
    began = time.perf_counter()
    variable_seconds: list[float] = []

    def ask_for_values(request: Request) -> Any:  # noqa: ANN401 - JSON
        before = time.perf_counter()
        answer = server.ask(request)
        variable_seconds.append(time.perf_counter() - before)
        return answer

    choices = choose(board, window, ask_for_values, chosen or {})
    queries = list(list_queries(board, window, choices, opened))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda query: _ask(server, query), queries))
    panels: dict[int, list[Answer]] = {}
    for answer in (one for one in answers if one.query.panel):
        panels.setdefault(answer.query.panel, []).append(answer)
    annotations = [one for one in answers if not one.query.panel]
    seconds = time.perf_counter() - began
    return Load(board, window, choices, annotations, panels, seconds, variable_seconds)


def _ask(server: Prometheus, query: Query) -> Answer:
    began = time.perf_counter()
    try:
        data = server.ask(query.request)
    except AskingError as error:
        return Answer(query, (), str(error), time.perf_counter() - began)
    seconds = time.perf_counter() - began
    if data["resultType"] in {"scalar", "string"}:
        return Answer(query, ({"metric": {}, "value": data["result"]},), "", seconds)
    return Answer(query, data["result"], "", seconds)


def list_queries(
    board: Json, window: Window, choices: Mapping[str, Choice], opened: Collection[str] = ()
) -> Iterator[Query]:
    """Give the queries of annotations that are switched on and of panels in open rows."""
    for annotation in board["annotations"]["list"]:
        if annotation.get("enable") and not annotation.get("builtIn"):
            yield _write_annotation(board["uid"], annotation, window, choices)
    for row, panel in list_panels(board, opened):
        for target in (one for one in panel["targets"] if not one.get("hide")):
            place = f"{row} / {panel['title']}"
            query = _write_target(panel, target, window, choices)
            yield replace(query, board=board["uid"], place=place, panel=panel["id"])


def list_panels(board: Json, opened: Collection[str] = ()) -> Iterator[tuple[str, Json]]:
    """Give the panels of open rows, each with its row's title."""
    row = ""
    for entry in board["panels"]:
        if entry["type"] != "row":
            yield row, entry
            continue
        row = entry["title"]
        if entry["collapsed"] and row in opened:
            yield from ((row, panel) for panel in entry["panels"])


def count_pixels(panel: Json) -> int:
    """Give the width of a panel on a page that is 1440 pixels wide."""
    return int(panel["gridPos"]["w"]) * COLUMN_PIXELS - GAP_PIXELS


def _write_target(
    panel: Json, target: Json, window: Window, choices: Mapping[str, Choice]
) -> Query:
    shown = window.look_back(read_duration(panel["timeFrom"])) if panel.get("timeFrom") else window
    pace = find_pace(
        shown,
        panel.get("maxDataPoints") or count_pixels(panel),
        least_seconds=_read_least(panel),
        own_seconds=_read_least(target),
    )
    expr = write_variables(target["expr"], choices, pace.list_variables())
    request = _write_now(expr, pace) if target.get("instant") else _write_range(expr, pace)
    return Query("", "", 0, target, request, pace)


def _read_least(holder: Json) -> float:
    interval = str(holder.get("interval") or "").removeprefix(">")
    return read_duration(interval) if interval else 0.0


def _write_annotation(
    uid: str, annotation: Json, window: Window, choices: Mapping[str, Choice]
) -> Query:
    target = annotation.get("target") or annotation
    least = read_duration(target.get("interval") or annotation.get("step") or "60s")
    pace = find_pace(window, PAGE_PIXELS, own_seconds=least)
    expr = write_variables(target["expr"], choices, pace.list_variables())
    return Query(uid, annotation["name"], 0, annotation, _write_range(expr, pace), pace)


def _write_range(expr: str, pace: Pace) -> Request:
    span = [("start", pace.start), ("end", pace.end), ("step", pace.step)]
    return write_request("query_range", [("query", expr), *span])


def _write_now(expr: str, pace: Pace) -> Request:
    return write_request("query", [("query", expr), ("time", pace.window.end)])
