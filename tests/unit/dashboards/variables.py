"""The checks of a dashboard's variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.dashboards.boards import Board, Place, walk_json
from tests.unit.dashboards.filling import BUILT_IN, find_variables
from tests.unit.dashboards.findings import Fault, View

Faults = Iterator[Fault]

_ON_TIME_RANGE = 2
_NATURAL, _AS_ASKED = (7, 8), 0
# The variable that selects the subject of each dashboard, except the fleet dashboard.
SUBJECTS = {
    "trainvitals-run": "run",
    "trainvitals-accelerators": "instance",
    "trainvitals-host": "instance",
    "trainvitals-containers": "instance",
}


def _place(board: Board, variable: dict[str, Any]) -> Place:
    return Place(board.title, "variable", str(variable.get("name")))


def check_source(view: View) -> Faults:
    """Find dashboards whose first variable does not select the data source."""
    for board in view.boards:
        first = board.variables[0] if board.variables else {}
        asked = (first.get("name"), first.get("type"), first.get("query"), first.get("label"))
        if asked != ("datasource", "datasource", "prometheus", "Data source"):
            yield Fault(board.place, "its first variable is not the data source")


def check_job(view: View) -> Faults:
    """Find dashboards without a variable `job` with the label Job that accepts several values."""
    for board in view.boards:
        variable = _find(board, "job")
        if variable is None:
            yield Fault(board.place, "has no variable job")
        elif (variable.get("label"), bool(variable.get("multi"))) != ("Job", True):
            yield Fault(_place(board, variable), "is not called Job or takes one value alone")


def check_instance(view: View) -> Faults:
    """Find dashboards without a variable `instance` that has the label Host."""
    for board in view.boards:
        variable = _find(board, "instance")
        if variable is None:
            yield Fault(board.place, "has no variable instance")
        elif variable.get("label") != "Host":
            yield Fault(_place(board, variable), f"is called {variable.get('label')}, not Host")


def _find(board: Board, name: str) -> dict[str, Any] | None:
    return next((one for one in board.variables if one.get("name") == name), None)


def check_refresh(view: View) -> Faults:
    """Find query variables whose values are not refreshed when the time range changes."""
    for board in view.boards:
        for variable in (one for one in board.variables if one.get("type") == "query"):
            if variable.get("refresh") != _ON_TIME_RANGE:
                yield Fault(_place(board, variable), f"refresh is {variable.get('refresh')}")


def check_choices(view: View) -> Faults:
    """Find query variables with an inconsistent choice of All, sort order or definition."""
    for board in view.boards:
        for variable in (one for one in board.variables if one.get("type") == "query"):
            place = _place(board, variable)
            multi, every = bool(variable.get("multi")), bool(variable.get("includeAll"))
            if multi != every or (every and variable.get("allValue") != ".+"):
                yield Fault(place, "several and All do not go together, or All is not .+")
            is_result = str(variable.get("definition", "")).startswith("query_result")
            if variable.get("sort") not in (*_NATURAL, *([_AS_ASKED] if is_result else [])):
                yield Fault(place, f"its values are sorted by {variable.get('sort')}")
            if variable.get("query", {}).get("query") != variable.get("definition"):
                yield Fault(place, "definition and query are two different texts")


def check_defaults(view: View) -> Faults:
    """Find dashboards about one host or one run whose variable also offers All."""
    for board in view.boards:
        variable = _find(board, SUBJECTS.get(board.uid, ""))
        if variable is not None and variable.get("includeAll"):
            yield Fault(_place(board, variable), "a board about one thing begins with all")


def check_use(view: View) -> Faults:
    """Find variables that are used before their definition, not defined, or not used."""
    for board in view.boards:
        names = [str(one.get("name")) for one in board.variables]
        used: set[str] = set()
        for place, text, known in _list_texts(board, names):
            found = find_variables(text)
            used |= found
            for name in sorted(found - set(known) - BUILT_IN):
                yield Fault(place, f"${name} is not defined{' before it' if name in names else ''}")
        for variable in board.variables:
            if variable.get("name") not in used:
                yield Fault(_place(board, variable), "nothing asks for it")


def _list_texts(board: Board, names: list[str]) -> Iterator[tuple[Place, str, list[str]]]:
    """Yield each text that may contain variables, with the variables that are defined for it."""
    for at, variable in enumerate(board.variables):
        texts = [variable.get("definition"), (variable.get("datasource") or {}).get("uid")]
        yield from ((_place(board, variable), str(text), names[:at]) for text in texts if text)
    parts = [(Place(board.title, "annotation", str(a["name"])), a) for a in board.annotations]
    parts += [(panel.place, panel.json) for panel in board.panels]
    parts += [(board.place, {"links": board.json.get("links")})]
    for place, part in parts:
        for _, text in walk_json(part):
            if isinstance(text, str):
                yield place, text, names
