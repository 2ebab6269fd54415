"""Checks of the links between alerts and dashboards: a panel names and shows each alert."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

from promql_parser import BinaryExpr, NumberLiteral, VectorSelector

from grafana.build.palette import CRITICAL, WARNING
from tests.support.promql import Node, children, walk
from tests.support.rulebook import Rule, Rulebook, is_threshold, read_names
from tests.support.rulelint.expressions import write_snake
from tests.support.rulelint.wording import find_dashboard
from tests.unit.dashboards.boards import Board, Panel, Place
from tests.unit.dashboards.catalogue import read_limits
from tests.unit.dashboards.drawing import list_steps
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import parse

Faults = Iterator[Fault]

# Limits that cannot be drawn as a line: time windows and exit codes.
_NO_LINE = ("window_seconds", "exit_code")
_STATES = (0, 1)  # steps between states are not limits
_IN_PASSING = 2
_COLOURS = {"critical": CRITICAL, "warning": WARNING}


def check_addresses(view: View) -> Faults:
    """Check that an alert's `dashboard_url` names an existing dashboard and its variables."""
    boards = {board.uid: board for board in view.boards}
    for alert in view.house.book.alerts:
        uid = find_dashboard(alert)
        if uid not in boards:
            yield Fault(Place(uid, "alert", alert.name), "leads to this board, which is not there")
            continue
        known = {str(variable.get("name")) for variable in boards[uid].variables}
        for name in _find_variables(alert) - known:
            says = f"leads to this board with ${name}, which it does not have"
            yield Fault(Place(boards[uid].title, "alert", alert.name), says)


def _find_variables(alert: Rule) -> set[str]:
    url = re.sub(r"\{\{.*?\}\}", "_", alert.annotations.get("dashboard_url", ""))
    url = url.replace("_&", "&")  # the actions `with` and `end` are not values
    keys = [key for key, _ in parse_qsl(urlsplit(url).query)]
    return {key.removeprefix("var-") for key in keys if key.startswith("var-")}


def check_homes(view: View) -> Faults:
    """Check that a panel names each alert on the dashboard to which the alert links."""
    boards = {board.uid: board for board in view.boards}
    for alert in view.house.book.alerts:
        board = boards.get(find_dashboard(alert))
        if board is not None and not _list_homes(alert, board):
            yield Fault(Place(board.title, "alert", alert.name), "has no panel that names it")


def _list_homes(alert: Rule, board: Board) -> list[Panel]:
    return [panel for panel in board.panels if alert.name in panel.alerts]


def check_named(view: View) -> Faults:
    """Check that an alert that a panel names exists, and that the panel queries its subject."""
    subjects = find_subjects(view.house.book)
    for board, panel in view.panels:
        for name in panel.alerts:
            if name not in subjects:
                yield Fault(panel.place, f"names {name}, which is no alert")
            elif not _shows(subjects[name], board, panel, view.house.book):
                about = ", ".join(sorted(subjects[name])) or "ALERTS"
                says = f"names {name} and asks nothing that it is about: {about}"
                yield Fault(panel.place, says)


def _shows(subjects: set[str], board: Board, panel: Panel, book: Rulebook) -> bool:
    nodes = [parse(one, board) for one in board.questions if one.panel is panel]
    asked = {name for node in nodes if node is not None for name in _select(node)}
    asked = _resolve(asked, book)
    if not subjects:  # an alert without a metric is visible only in ALERTS
        return "ALERTS" in asked
    patterns = [name for name in subjects if not re.fullmatch(r"[\w:]+", name)]
    return bool(asked & subjects) or any(re.fullmatch(p, one) for p in patterns for one in asked)


def find_subjects(book: Rulebook) -> dict[str, set[str]]:
    """Return the subject metrics of each alert, resolved through recording rules.

    The subjects are the metrics of the alert's value and those of its own conditions. Conditions
    that more than two alerts share, such as `training_process_up`, are omitted.
    """
    conditions = {alert.name: _list_conditions(alert) for alert in book.alerts}
    passing = Counter(name for several in conditions.values() for name in several)
    subjects = {}
    for alert in book.alerts:
        names = {name for name in _select_measured(alert.parse()) if not is_threshold(name)}
        names |= {name for name in conditions[alert.name] if passing[name] <= _IN_PASSING}
        subjects[alert.name] = _resolve(names or _select(alert.parse()), book)
    return subjects


def _list_conditions(alert: Rule) -> set[str]:
    node = alert.parse()
    return {one for one in _select(node) - _select_measured(node) if not is_threshold(one)}


def _select_measured(node: Node) -> set[str]:
    if isinstance(node, BinaryExpr) and str(node.op) in ("and", "unless"):
        return _select_measured(children(node)[0])
    if isinstance(node, VectorSelector):
        return _select(node)
    return set().union(*(_select_measured(part) for part in children(node)))


def _select(node: Node) -> set[str]:
    """Return the metrics that an expression selects; patterns of names are returned unchanged."""
    selectors = [part for part in walk(node) if isinstance(part, VectorSelector)]
    patterns = {m.value for one in selectors for m in one.matchers.matchers if m.name == "__name__"}
    return {one.name for one in selectors if one.name} | patterns


def _resolve(names: set[str], book: Rulebook) -> set[str]:
    """Return the names with all metrics from which they are recorded."""
    found, waiting = set(names), list(names)
    while waiting:
        for record in book.find_record(waiting.pop()):
            more = {one for one in read_names(record.parse()) if not is_threshold(one)} - found
            found |= more
            waiting.extend(more)
    return found


def check_limits(view: View) -> Faults:
    """Check that panels draw the limits of the alerts they name, and no other limits."""
    limits = read_limits(view.house.book)
    boards = {board.uid: board for board in view.boards}
    alerts = {alert.name: alert for alert in view.house.book.alerts}
    for alert in alerts.values():
        board = boards.get(find_dashboard(alert))
        own = _find_own(alert, limits)
        homes = _list_homes(alert, board) if board else []
        if board and own and homes and not any(_draws(own, one, board) for one in homes):
            values = ", ".join(f"{name} {value:g}" for name, value in own.items())
            yield Fault(homes[0].place, f"draws no limit of {alert.name}: {values}")
    for _, panel in view.panels:
        for value in _list_values(panel) if panel.alerts else ():
            if value not in _STATES and not _is_any(value, limits):
                yield Fault(panel.place, f"has a step at {value:g}, where no alert begins")


def check_limit_colours(view: View) -> Faults:
    """Check that a step at an alert's limit has the colour of the severity on one side."""
    limits = read_limits(view.house.book)
    alerts = {alert.name: alert for alert in view.house.book.alerts}
    for _, panel in view.panels:
        for alert in (alerts[name] for name in panel.alerts if name in alerts):
            wanted = _COLOURS.get(alert.labels.get("severity", ""))
            beside = set(_list_beside(panel, _find_own(alert, limits)))
            if wanted and beside and wanted not in beside:
                says = (
                    f"the limit of {alert.name} is not {wanted} but {' and '.join(sorted(beside))}"
                )
                yield Fault(panel.place, says)


def _find_own(alert: Rule, limits: Mapping[str, float]) -> dict[str, float]:
    """Return the limits of an alert's value that can be drawn as a line."""
    prefix = f"threshold:{write_snake(alert.name)}:"
    names = {name for name in _select_measured(alert.parse()) if name.startswith(prefix)}
    return {name: limits[name] for name in sorted(names) if not name.endswith(_NO_LINE)}


def _draws(own: Mapping[str, float], panel: Panel, board: Board) -> bool:
    nodes = [parse(one, board) for one in board.questions if one.panel is panel]
    parts = [part for node in nodes if node is not None for part in walk(node)]
    drawn = [part.val for part in parts if isinstance(part, NumberLiteral)]
    drawn += _list_values(panel)
    is_asked = any(isinstance(part, VectorSelector) and part.name in own for part in parts)
    return is_asked or any(_is_any(one, own) for one in drawn if one not in _STATES)


def _list_values(panel: Panel) -> list[float]:
    steps = [step.get("value") for several in list_steps(panel) for step in several]
    return [float(value) for value in steps if value is not None]


def _is_any(value: float, limits: Mapping[str, float]) -> bool:
    """Return whether a number is a limit, also negated, as a ratio, or as its complement."""
    return any(
        math.isclose(value, form, rel_tol=1e-9)
        for name, limit in limits.items()
        for form in _list_forms(name, limit)
    )


def _list_forms(name: str, limit: float) -> list[float]:
    forms = [limit, -limit]
    forms += [limit / 100] if name.endswith("percent") else []
    forms += [1 - limit] if name.endswith("ratio") else []
    return forms


def _list_beside(panel: Panel, own: Mapping[str, float]) -> Iterator[str]:
    """Yield the colours below and above each step that is a limit."""
    for steps in list_steps(panel):
        for below, above in pairwise(steps):
            if above.get("value") is not None and _is_any(float(above["value"]), own):
                yield from (str(below.get("color")), str(above.get("color")))
