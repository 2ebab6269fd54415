"""Checks of whole dashboards: settings, annotations and versions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from promql_parser import AggregateExpr, BinaryExpr, VectorSelector

from grafana.build.palette import CRITICAL, INFORMATION, UNKNOWN
from tests.support.promql import Node, children
from tests.unit.dashboards.boards import Board, Question, walk_json
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import parse

Faults = Iterator[Fault]

BOARDS = {
    "trainvitals-fleet": "Vitals / Fleet",
    "trainvitals-run": "Vitals / Training run",
    "trainvitals-accelerators": "Vitals / Accelerators",
    "trainvitals-host": "Vitals / Host",
    "trainvitals-containers": "Vitals / Containers & OOM",
}
_SCHEMA = 42
# Properties that Grafana 10.4 does not have; `make test-grafana` checks all against its packages.
_LATER = frozenset({"hideZeros", "percentChangeColorMode", "preload"})
_SHARED_CROSSHAIR = 1
# The events of a run, each with its colour and whether the run's dashboard shows it by default.
_OF_RUNS = "trainvitals-run"
_MOMENTS = {
    "training_process_start_time_seconds": (INFORMATION, True),
    "training_checkpoint_last_timestamp_seconds": (UNKNOWN, False),
    "training_process_end_timestamp_seconds": (CRITICAL, True),
}
_FEW = 10
_OOM_KILLS = ("host_oom_kills_total", "container_oom_kills_total")


def check_family(view: View) -> Faults:
    """Check that there are exactly five dashboards, each with the expected uid and title."""
    found = {board.uid: board.title for board in view.boards}
    for board in view.boards:
        if BOARDS.get(board.uid) != board.title:
            yield Fault(board.place, f"uid {board.uid!r} and title {board.title!r} are no board's")
    for uid, title in BOARDS.items():
        if uid not in found and view.boards:
            yield Fault(view.boards[0].place, f"there is no board {title} ({uid})")


def check_unique(view: View) -> Faults:
    """Check that uids and titles are unique, because Grafana would show an arbitrary dashboard."""
    for what in ("uid", "title"):
        counts = Counter(str(board.json.get(what)) for board in view.boards)
        for board in view.boards:
            if counts[str(board.json.get(what))] > 1:
                yield Fault(board.place, f"another board has the {what} {board.json.get(what)}")


def check_leftovers(view: View) -> Faults:
    """Check that no fields of an export remain, such as ids, inputs or requirements."""
    for board in view.boards:
        for key in ("id", "__inputs", "__requires", "__elements", "iteration", "version", "gnetId"):
            if key in board.json:
                yield Fault(board.place, f"has {key}, which Grafana writes into exports")


def check_version(view: View) -> Faults:
    """Check that no property is used that the oldest supported version of Grafana lacks."""
    for board in view.boards:
        parts = [(board.place, {**board.json, "panels": []})]
        parts += [(panel.place, panel.json) for panel in board.panels]
        for place, part in parts:
            found = {path.rpartition("/")[2] for path, _ in walk_json(part)}
            for key in sorted(found & _LATER):
                yield Fault(place, f"has {key}, which Grafana 10.4 does not read")


def check_settings(view: View) -> Faults:
    """Check the schema version, the common settings and the description of each dashboard."""
    wanted = {
        "schemaVersion": _SCHEMA,
        "editable": False,
        "graphTooltip": _SHARED_CROSSHAIR,
        "timezone": "browser",
    }
    for board in view.boards:
        for key, value in wanted.items():
            if board.json.get(key) != value:
                yield Fault(board.place, f"{key} is {board.json.get(key)}, not {value}")
        if not str(board.json.get("description", "")).strip().endswith("?"):
            yield Fault(board.place, "its description is not the question that it answers")


def check_alert_regions(view: View) -> Faults:
    """Check that an annotation shows firing alerts as regions with name and severity."""
    for board in view.boards:
        regions = [one for one in board.questions if _shows_alerts(one, board)]
        if not regions:
            yield Fault(board.place, "no annotation shows firing alerts as regions")
        for question in regions:
            said = (question.json.get("titleFormat"), question.json.get("textFormat", ""))
            if said[0] != "{{alertname}}" or "{{severity}}" not in said[1]:
                yield Fault(question.place, "does not say alert and severity")


def check_curves(view: View) -> Faults:
    """Check that only annotations with a limited number of events are enabled by default."""
    for board in view.boards:
        for question in (one for one in board.questions if one.kind == "annotation"):
            is_few = re.search(r"changes\(.*\) > (\d+)", question.expr)
            if question.json.get("enable") and not (is_few and int(is_few[1]) <= _FEW):
                yield Fault(question.place, "is drawn before somebody asks, however often it was")


def _shows_alerts(question: Question, board: Board) -> bool:
    node = parse(question, board) if question.kind == "annotation" else None
    while isinstance(node, AggregateExpr) or (
        isinstance(node, BinaryExpr) and str(node.op) in ("and", "or", "unless")
    ):
        node = children(node)[-1 if isinstance(node, AggregateExpr) else 0]
    if not isinstance(node, VectorSelector) or question.json.get("useValueForTime"):
        return False
    matched = {matcher.name: matcher.value for matcher in node.matchers.matchers}
    return node.name == "ALERTS" and matched.get("alertstate") == "firing"


def check_moments(view: View) -> Faults:
    """Check the colours and the default state of the annotations for a run's events."""
    for board in view.boards:
        asked = [one for one in board.questions if one.kind == "annotation"]
        found = {name: one for one in asked for name in _find_shown(parse(one, board))}
        for name, (colour, is_on) in _MOMENTS.items():
            question = found.get(name)
            if question is None:
                if board.uid == _OF_RUNS:
                    yield Fault(board.place, f"no annotation shows {name}")
                continue
            drawn, is_drawn = question.json, is_on and board.uid == _OF_RUNS
            if (drawn.get("iconColor"), drawn.get("enable")) != (colour, is_drawn):
                yield Fault(question.place, f"is not {colour} and {'on' if is_drawn else 'off'}")
            if not drawn.get("useValueForTime"):
                yield Fault(question.place, "is drawn when it was asked, not when it was")


def _find_shown(node: Node | None) -> set[str]:
    """Return the metrics in an annotation's value, without those that only select series."""
    if isinstance(node, BinaryExpr) and str(node.op) in ("and", "unless"):
        return _find_shown(children(node)[0])
    if isinstance(node, VectorSelector):
        return {node.name or ""}
    return set().union(*(_find_shown(part) for part in children(node))) if node else set()


def check_oom_kills(view: View) -> Faults:
    """Check that every dashboard has a red annotation for OOM kills."""
    for board in view.boards:
        asked = [one for one in board.questions if one.kind == "annotation"]
        kills = [one for one in asked if any(name in one.expr for name in _OOM_KILLS)]
        if not kills:
            yield Fault(board.place, "no annotation shows OOM kills")
        for question in kills:
            if question.json.get("iconColor") != CRITICAL:
                yield Fault(question.place, f"is not {CRITICAL}")
