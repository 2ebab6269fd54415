"""Checks of all queries of panels, annotations and variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatchOp,
    MatrixSelector,
    StringLiteral,
    SubqueryExpr,
    VectorSelector,
)

from tests.support.promql import SETS, Node, children, walk, write
from tests.support.rulelint import expressions
from tests.support.rulelint.house import House
from tests.support.rulelint.produced import find_labels
from tests.unit.dashboards.boards import Board, Question
from tests.unit.dashboards.catalogue import add_questions, is_of_a_target
from tests.unit.dashboards.filling import Times, fill, fill_thrice, list_values
from tests.unit.dashboards.findings import Fault, View

Faults = Iterator[Fault]

# Unusual ranges, by which substituted values can be recognised.
MARKED = Times("61s", "13s", 3607)

# The `@` modifier, which changes neither labels nor units and which no rule uses.
_AT = re.compile(r"@\s*(?:(?:end|start)\(\)|[\d.]+)")

# Functions that are missing in Prometheus 2.42, the oldest supported version, or in 3.x.
_NOT_EVERYWHERE = frozenset(
    {
        *("limitk", "limit_ratio", "info", "sort_by_label", "sort_by_label_desc"),
        *("holt_winters", "double_exponential_smoothing", "mad_over_time", "first_over_time"),
        *("histogram_avg", "histogram_stddev", "histogram_stdvar"),
        *(f"ts_of_{kind}_over_time" for kind in ("first", "last", "max", "min")),
    }
)


@cache
def _parse(text: str) -> Node | str:
    """Parse PromQL; return the parser's message if that fails."""
    try:
        return promql_parser.parse(text)  # type: ignore[return-value]  # has no union
    except ValueError as error:
        return str(error)


def parse(question: Question, board: Board) -> Node | None:
    """Parse a query with one value for each variable and without `@`; return None on errors."""
    one = {name: values[0] for name, values in list_values(board).items()}
    node = _parse(_AT.sub("", fill(question.expr, one | MARKED.by_variable())))
    return None if isinstance(node, str) else node


def parse_all(view: View, *kinds: str) -> Iterator[tuple[Board, Question, Node]]:
    """Yield every query of these kinds, or of all kinds, that can be parsed."""
    for board, question in list_questions(view, *kinds):
        if (node := parse(question, board)) is not None:
            yield board, question, node


def list_questions(view: View, *kinds: str) -> Iterator[tuple[Board, Question]]:
    """Yield every query of these kinds, or of all kinds."""
    for board in view.boards:
        asked = board.questions
        yield from ((board, one) for one in asked if not kinds or one.kind in kinds)


def check_parses(view: View) -> Faults:
    """Check that each query parses with one value for each variable, with several, and with all."""
    for board, question in list_questions(view, "target", "annotation"):
        if question.expr.strip():
            yield from _find_errors(board, question)
        else:
            yield Fault(question.place, "has no PromQL")


def check_variables_parse(view: View) -> Faults:
    """Check that each variable queries the labels of a metric or the result of a query."""
    for board, question in list_questions(view, "variable"):
        if question.expr:
            yield from _find_errors(board, question)
        elif question.label:
            yield Fault(question.place, f"label_values({question.label}) reads every series")
        else:
            yield Fault(question.place, "neither label_values(METRIC, LABEL) nor query_result(…)")


def _find_errors(board: Board, question: Question) -> Faults:
    ways = zip(("one value", "several", "all"), fill_thrice(question.expr, board), strict=True)
    for way, text in ways:
        if isinstance(error := _parse(text), str):
            yield Fault(question.place, f"with {way} for each variable: {error}")
            return


def check_equality(view: View) -> Faults:
    """Check that a variable with several choices is matched with a pattern, not with `=`."""
    for board, question in list_questions(view):
        several = {name: values[1] for name, values in list_values(board).items()}
        filled = {several[name]: name for name in board.multiple}
        node = _parse(fill(question.expr, several | MARKED.by_variable()))
        for part in () if isinstance(node, str) else walk(node):
            for matcher in part.matchers.matchers if isinstance(part, VectorSelector) else ():
                if matcher.op in (MatchOp.Equal, MatchOp.NotEqual) and matcher.value in filled:
                    says = f"{matcher.name} equals ${filled[matcher.value]}, which may be several"
                    yield Fault(question.place, says)


def check_results(view: View) -> Faults:
    """Check that each query returns an instant vector or a scalar, as only these can be drawn."""
    for _, question, node in parse_all(view):
        if isinstance(node, MatrixSelector | SubqueryExpr | StringLiteral):
            yield Fault(question.place, f"gives no vector: {write(node)}")


def check_functions(view: View) -> Faults:
    """Check that Prometheus 2.42 and 3.x both have every function."""
    for _, question, node in parse_all(view):
        for part in walk(node):
            name = part.func.name if isinstance(part, Call) else ""
            name = str(part.op) if isinstance(part, AggregateExpr) else name
            if name in _NOT_EVERYWHERE:
                yield Fault(question.place, f"asks for {name}, which not every Prometheus has")


def check_metrics(view: View) -> Faults:
    """Check that each metric is recorded or served by the exporter, Prometheus or Alertmanager."""
    yield from _judge(view, expressions.check_metrics)


def check_labels(view: View) -> Faults:
    """Check that each label in a query exists on the metric and can have the matched value."""
    yield from _judge(view, expressions.check_matchers)
    yield from _judge(view, expressions.check_named_labels)
    for _, question, node in parse_all(view, "variable"):
        if question.label and question.label not in find_labels(node, view.house):
            yield Fault(question.place, f"no label {question.label} on {write(node)}")


def check_types(view: View) -> Faults:
    """Check that `rate` and similar functions get counters, and `deriv` and similar get gauges."""
    yield from _judge(view, expressions.check_types)


def check_joins(view: View) -> Faults:
    """Check that vectors with different labels are joined `on` labels, with job and instance."""
    yield from _judge(view, expressions.check_matching)
    for _, question, node in parse_all(view):
        for part in walk(node):
            if isinstance(part, BinaryExpr) and (missing := _find_missing(part, view.house)):
                says = f"on (…) lacks {' and '.join(missing)}: {write(part)}"
                yield Fault(question.place, says)


def _find_missing(node: BinaryExpr, house: House) -> list[str]:
    """Return those of job and instance that both sides have but `on` omits; `on ()` is exempt."""
    matching = node.modifier.matching if node.modifier is not None else None
    is_for_any = matching is not None and not matching.labels and str(node.op) in SETS
    if matching is None or is_for_any or "on (" not in str(node.modifier):
        return []
    left, right = (find_labels(child, house) for child in children(node))
    return [name for name in ("job", "instance") if name in left & right - {*matching.labels}]


def _judge(view: View, check: Callable[[House], Iterator[str]]) -> Faults:
    """Apply a check of rules to the queries."""
    asked = {f"q{at}": (one, node) for at, (_, one, node) in enumerate(parse_all(view))}
    texts = {name: write(node) for name, (_, node) in asked.items()}
    for complaint in check(add_questions(view.house, texts)):
        name, _, says = complaint.partition(": ")
        if name in asked:
            yield Fault(asked[name][0].place, says)


def check_job(view: View) -> Faults:
    """Check that each selector of a target's series matches the selected job."""
    yield from _find_unmatched(view, "job")


def check_instance(view: View) -> Faults:
    """Check that each selector of a target's series matches the selected instance."""
    yield from _find_unmatched(view, "instance")


def _find_unmatched(view: View, label: str) -> Faults:
    for board, question, node in parse_all(view):
        if question.kind == "variable" and not _comes_after(board, question, label):
            continue  # a variable cannot depend on a later variable
        chosen = list_values(board).get(label, ("",))[0]
        for part in walk(node):
            if isinstance(part, VectorSelector) and is_of_a_target(part.name or "", view.house):
                matched = [m.value for m in part.matchers.matchers if m.name == label]
                # `$job|` also matches series without a job, such as alerts about Prometheus.
                if not chosen or not {chosen, f"{chosen}|"} & {*matched}:
                    yield Fault(question.place, f'{part.name} lacks {label}=~"${label}"')


def _comes_after(board: Board, question: Question, name: str) -> bool:
    names = [str(variable.get("name")) for variable in board.variables]
    return name in names and names.index(question.place.panel) > names.index(name)
