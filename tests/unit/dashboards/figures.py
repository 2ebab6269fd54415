"""Checks of the arithmetic in queries: rates, divisions and scaling."""

from __future__ import annotations

import re
from collections.abc import Iterator

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    VectorSelector,
)

from tests.support.promql import Node, children, walk, write
from tests.support.rulelint.expressions import OF_COUNTERS
from tests.support.rulelint.house import House
from tests.support.rulelint.metrics import Metric
from tests.support.rulelint.produced import is_scalar
from tests.unit.dashboards.boards import Question
from tests.unit.dashboards.catalogue import read_limits
from tests.unit.dashboards.findings import Fault, View
from tests.unit.dashboards.queries import MARKED, parse_all

Faults = Iterator[Fault]
Path = tuple[tuple[Node, int], ...]

_RATE_INTERVAL_SECONDS = 61.0  # the rate interval in `MARKED`
_UNITS_OF_TIME = (("s", 1), ("min", 60), ("m", 60), ("h", 3600), ("d", 86400), ("days", 86400))

_RATES = ("rate", "irate", "increase")
# Functions that treat their argument as a counter, and functions that only test its presence.
_READS_COUNTERS = (*OF_COUNTERS, "changes", "timestamp")
_SLOPES = ("deriv", "delta")
_ASKS_PRESENCE = ("absent", "absent_over_time", "present_over_time", "count_over_time")
_COUNTS = ("count", "group")

_PER_CENT, _MILLISECONDS = 100, 1000
_STATES = 60  # smaller integers may encode states


def walk_down(node: Node, path: Path = ()) -> Iterator[tuple[Node, Path]]:
    """Yield an expression and its parts, each with its ancestors and the positions in them."""
    yield node, path
    for at, child in enumerate(children(node)):
        yield from walk_down(child, (*path, (node, at)))


def check_rate_interval(view: View) -> Faults:
    """Check that rates use `$__rate_interval` or a range that a title names."""
    for _, question, node in parse_all(view):
        for part, path in walk_down(node):
            if not isinstance(part, MatrixSelector | SubqueryExpr) or part.range is None:
                continue
            seconds = part.range.total_seconds()
            name = _find_call(path)
            if name in _RATES and not _is_said(seconds, question):
                yield Fault(question.place, f"{name} over a fixed range: {write(part)}")
            if seconds == _RATE_INTERVAL_SECONDS and name not in (*_READS_COUNTERS, *_SLOPES):
                says = f"$__rate_interval is for rates, not for {name or write(part)}"
                yield Fault(question.place, says)


def _find_call(path: Path) -> str:
    parent = path[-1][0] if path else None
    return str(parent.func.name) if isinstance(parent, Call) else ""


def _is_said(seconds: float, question: Question) -> bool:
    """Return whether a range is `$__rate_interval` or is named in a title, column or legend."""
    panel = question.panel
    if seconds == _RATE_INTERVAL_SECONDS:
        return True
    if panel is None:
        return False
    column = panel.renamed.get(f"Value #{question.place.query}", "")
    titles = f"{panel.title} {column} {question.json.get('legendFormat', '')}"
    if seconds == MARKED.range_seconds:
        return "range" in titles
    return any(re.search(rf"\b{form}\b", titles) for form in _write_range(seconds))


def _write_range(seconds: float) -> list[str]:
    """Return patterns for a range in titles, which match `24 h`, `24h`, `1 d` or `day`."""
    forms = [f"{seconds / one:g} ?{name}" for name, one in _UNITS_OF_TIME if seconds % one == 0]
    return [*forms, *(name for name, one in (("hour", 3600), ("day", 86400)) if one == seconds)]


def check_counters(view: View) -> Faults:
    """Check that a counter is queried only by its rate or increase, not by its raw value."""
    for _, question, node in parse_all(view, "target", "annotation"):
        for part, path in walk_down(node):
            is_read = any(_reads_as_counter(parent, at) or _is_rise(parent) for parent, at in path)
            if isinstance(part, VectorSelector) and not is_read and _is_counter(part, view.house):
                yield Fault(question.place, f"{part.name} as it is, without rate or increase")


def _is_counter(node: VectorSelector, house: House) -> bool:
    return (house.find_metric(node.name or "") or Metric("gauge")).type == "counter"


def _is_rise(node: Node) -> bool:
    """Return whether an operation compares a counter with its own earlier value."""
    if not (isinstance(node, BinaryExpr) and str(node.op) in ("-", "unless")):
        return False
    now, before = children(node)
    are_counters = isinstance(now, VectorSelector) and isinstance(before, VectorSelector)
    return are_counters and bool(before.offset) and write(before).startswith(write(now))


def check_bars(view: View) -> Faults:
    """Check that bars count events in windows of one step, since overlaps count events twice."""
    for _, question, node in parse_all(view, "target"):
        custom = question.panel.defaults.get("custom", {}) if question.panel else {}
        if custom.get("drawStyle") != "bars":
            continue
        for part, path in walk_down(node):
            if isinstance(part, MatrixSelector) and _find_call(path) in _RATES:
                seconds = part.range.total_seconds()
                if seconds == _RATE_INTERVAL_SECONDS or not _is_step(seconds, question):
                    yield Fault(question.place, f"draws bars of {_find_call(path)}: {write(part)}")


def _is_step(seconds: float, question: Question) -> bool:
    """Return whether a panel's minimum interval has this length."""
    step = str(question.panel.json.get("interval", "")) if question.panel else ""
    units = dict(_UNITS_OF_TIME)
    return step[:-1].isdigit() and int(step[:-1]) * units.get(step[-1], 0) == seconds


def _reads_as_counter(parent: Node, at: int) -> bool:
    match parent:
        case Call():
            return parent.func.name in (*_READS_COUNTERS, *_ASKS_PRESENCE)
        case AggregateExpr():
            return str(parent.op) in _COUNTS
        case BinaryExpr():
            return at == 1 and str(parent.op) in ("and", "unless")
    return False


def check_divisions(view: View) -> Faults:
    """Check that no query divides by an expression that may be 0."""
    for _, question, node in parse_all(view):
        for part in walk(node):
            if isinstance(part, BinaryExpr) and str(part.op) in ("/", "%"):
                divisor = children(part)[1]
                if not _is_guarded(divisor):
                    yield Fault(question.place, f"divides by {write(divisor)}, which may be 0")


def _is_guarded(node: Node) -> bool:  # noqa: PLR0911 - one for each kind
    """Return whether an expression is never 0."""
    parts = children(node)
    match node:
        case NumberLiteral():
            return bool(node.val != 0)
        case ParenExpr():
            return _is_guarded(parts[0])
        case VectorSelector():
            return (node.name or "").startswith("threshold:")
        case Call():
            name = node.func.name
            if name == "clamp_min":
                return _is_guarded(parts[1])
            return name in ("scalar", "label_replace", "abs") and _is_guarded(parts[0])
        case AggregateExpr():
            return str(node.op) in _COUNTS or _is_guarded(parts[-1])
        case BinaryExpr():
            return _is_guarded_operation(str(node.op), *parts)
    return False


def _is_guarded_operation(operator: str, left: Node, right: Node) -> bool:
    if operator in (">", "<", "!="):
        return isinstance(right, NumberLiteral) and right.val == 0
    if operator in ("and", "unless"):
        return _is_guarded(left)
    return operator in ("*", "/", "+", "or") and _is_guarded(left) and _is_guarded(right)


def check_scaling(view: View) -> Faults:
    """Check that a query scales only by limits, per cent to ratios, and times to dates.

    Grafana scales all other units. Values that become labels are exempt.
    """
    limits = set(read_limits(view.house.book).values())
    for _, question, node in parse_all(view):
        for part, path in walk_down(node):
            if _is_in_label(path):
                continue
            if isinstance(part, BinaryExpr) and str(part.op) in ("*", "/"):
                left, right = children(part)
                for number, other in ((left, right), (right, left)):
                    if (
                        isinstance(number, NumberLiteral)
                        and number.val not in limits
                        and not _may_scale(number.val, other)
                    ):
                        yield Fault(question.place, f"scales by {number.val:g}: {write(part)}")


def _is_in_label(path: Path) -> bool:
    """Return whether an expression's value becomes the text of a label."""
    return any(
        isinstance(parent, AggregateExpr) and str(parent.op) == "count_values" for parent, _ in path
    )


def _may_scale(number: float, other: Node) -> bool:
    if is_scalar(other):
        return True
    names = [part.name or "" for part in walk(other) if isinstance(part, VectorSelector)]
    if number == _PER_CENT:
        return any("percent" in name for name in names)
    if number == _MILLISECONDS:
        return any("time" in name for name in names)
    return float(number).is_integer() and abs(number) < _STATES
