"""Checks of the expressions of rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    SubqueryExpr,
    VectorMatchCardinality,
    VectorSelector,
    display_duration,
)

from tests.support.promql import Node, children, walk, write
from tests.support.rulebook import Rule, is_threshold, read_names
from tests.support.rulelint.house import House
from tests.support.rulelint.metrics import Metric
from tests.support.rulelint.produced import find_labels, is_between_vectors, keeps_labels_of_target

OF_COUNTERS = ("rate", "increase", "irate", "resets")
OF_GAUGES = ("deriv", "predict_linear", "delta", "idelta")

_SHORTEST_RANGE_SECONDS = 20
_SCRAPES_IN_A_RANGE = 4

# Numbers that are not limits, with their meanings; 0 and 1 are always allowed, as states.
EXPLAINED_NUMBERS: Mapping[float, str] = {
    0.5: "the median, in quantile() and quantile_over_time()",
    100: "per cent of a ratio",
}

# Rules whose numbers encode names, with the meaning of the numbers.
NUMBERS_THAT_NAME: Mapping[str, str] = {
    "run:rank_state:number": "states, by grafana/build/run_verdict.py",
    "run:training_state:number": "states, by grafana/build/run_verdict.py",
    "run:training_verdict:number": "states, by grafana/build/run_verdict.py",
    "accelerator:verdict:number": "states, by grafana/build/run_verdict.py",
    "instance:accelerators_busy:bucket": "the buckets of a histogram",
}

# Rules that aggregate `by`, or whose series lose the labels of the target, each with the reason.
AGGREGATED_BY: Mapping[str, str] = {
    "ExporterJobDown": "is about all targets of a job; keeps the labels by which alerts are routed",
    "ThresholdsMissing": "is about Prometheus itself",
}
WITHOUT_TARGET: Mapping[str, str] = {
    **AGGREGATED_BY,
    "Watchdog": "is about nothing but itself",
}

# Thresholds that are read only by the exporter.
READ_BY_THE_EXPORTER = frozenset({"threshold:accelerator_held_idle:reason_seconds"})

Complaints = Iterator[str]


def check_metrics(house: House) -> Complaints:
    """Check that every selected metric is recorded, served or planned."""
    records = {rule.name for rule in house.book.records}
    for rule in house.book.rules:
        named = {name for expression in rule.parse_all() for name in read_names(expression)}
        for name in sorted(named - records):
            if house.find_metric(name) is None:
                yield f"{rule.name}: {name} is not served"


def check_allowed_metrics(house: House) -> Complaints:
    """Check that a rule uses every allowed metric of other programs, to keep the list short."""
    used = {name for rule in house.book.rules for name in read_names(rule.parse())}
    for name in sorted(house.elsewhere.keys() - used):
        yield f"{name} is allowed and no rule names it"


def check_matchers(house: House) -> Complaints:
    """Check that the labels and values in each selector exist on the metric."""
    for rule in house.book.rules:
        for node in _walk_all(rule):
            if isinstance(node, VectorSelector):
                labels = find_labels(node, house)
                values = _find_values(node.name or "", house)
                for matcher in node.matchers.matchers:
                    if matcher.name not in labels | {"__name__"}:
                        yield f"{rule.name}: {node.name} has no label {matcher.name}"
                    known = values.get(matcher.name)
                    for value in _split(matcher.op, matcher.value):
                        if known and not any(re.fullmatch(value, there) for there in known):
                            yield f"{rule.name}: {matcher.name} of {node.name} is never {value}"


def _walk_all(rule: Rule) -> Iterator[Node]:
    for expression in rule.parse_all():
        yield from walk(expression)


def _find_values(name: str, house: House) -> dict[str, frozenset[str]]:
    metric = house.find_metric(name) or Metric("gauge")
    return {**metric.values, "job": house.jobs}


def _split(operator: MatchOp, value: str) -> list[str]:
    """Return the alternatives of a matcher as regular expressions; an empty value has none."""
    if operator in (MatchOp.Equal, MatchOp.NotEqual):
        return [re.escape(value)] if value not in ("", "*") else []
    return [alternative for alternative in value.strip("()").split("|") if alternative]


def check_named_labels(house: House) -> Complaints:
    """Check that labels in `on`, `ignoring`, `by`, `without` and `group_left` exist on operands."""
    for rule in house.book.rules:
        for node in _walk_all(rule):
            for labels, sides in _find_named(node):
                for side in sides:
                    for label in sorted(set(labels) - {"__name__"} - find_labels(side, house)):
                        yield f"{rule.name}: no label {label} on {write(side)}"


def _find_named(node: Node) -> Iterator[tuple[list[str], tuple[Node, ...]]]:
    if isinstance(node, AggregateExpr) and node.modifier is not None:
        yield node.modifier.labels, children(node)[-1:]
    if isinstance(node, BinaryExpr) and node.modifier is not None:
        left, right = children(node)
        card = node.modifier.card
        if node.modifier.matching is not None and str(node.op) == "or":
            yield node.modifier.matching.labels, (left,)
        elif node.modifier.matching is not None and "on (" in str(node.modifier):
            yield node.modifier.matching.labels, (left, right)
        if card == VectorMatchCardinality.ManyToOne:
            yield node.modifier.group_labels or [], (right,)
        if card == VectorMatchCardinality.OneToMany:
            yield node.modifier.group_labels or [], (left,)


def check_types(house: House) -> Complaints:
    """Check that `rate` and similar functions get counters, and `deriv` and similar get gauges."""
    for rule in house.book.rules:
        for node in walk(rule.parse()):
            if isinstance(node, Call) and node.func.name in (*OF_COUNTERS, *OF_GAUGES):
                name = _find_name(children(node)[0])
                metric = house.find_metric(name) or Metric("gauge")
                wanted = "counter" if node.func.name in OF_COUNTERS else "gauge"
                if metric.type != wanted:
                    yield f"{rule.name}: {node.func.name} of {name or 'a subquery'}, a {metric.type}"


def _find_name(node: Node) -> str:
    selector = node.vector_selector if isinstance(node, MatrixSelector) else None
    return (selector.name or "") if selector else ""


def check_ranges(house: House) -> Complaints:
    """Check that each range covers 20 s and four scrapes, so that one scrape may be lost."""
    shortest = max(_SHORTEST_RANGE_SECONDS, _SCRAPES_IN_A_RANGE * house.scrape_interval_seconds)
    for rule in house.book.rules:
        for node in walk(rule.parse()):
            range_ = node.range if isinstance(node, MatrixSelector | SubqueryExpr) else None
            if range_ is not None and range_.total_seconds() < shortest:
                yield f"{rule.name}: {display_duration(range_)} is less than {shortest:.0f} s"


def check_matching(house: House) -> Complaints:
    """Check that an operation between vectors with different labels has `on` or `ignoring`."""
    for rule in house.book.rules:
        for node in walk(rule.parse()):
            if isinstance(node, BinaryExpr) and is_between_vectors(node) and str(node.op) != "or":
                left, right = (find_labels(child, house) for child in children(node))
                named = node.modifier is not None and node.modifier.matching is not None
                if left != right and not named:
                    yield f"{rule.name}: neither on nor ignoring in {write(node)}"


def check_aggregations(house: House) -> Complaints:
    """Check that aggregations use `without`, which keeps the labels of the target."""
    for rule in house.book.rules:
        for node in walk(rule.parse()):
            if isinstance(node, AggregateExpr) and rule.name not in AGGREGATED_BY:
                modifier = node.modifier
                if modifier is None or modifier.type == AggModifierType.By:
                    yield f"{rule.name}: not without, but {write(node)}"


def check_labels_of_target(house: House) -> Complaints:
    """Check that alerts keep the labels that a user adds to a target, such as `team`."""
    for rule in house.book.rules:
        if rule.name not in WITHOUT_TARGET and not keeps_labels_of_target(rule, house):
            yield f"{rule.name}: loses labels of the target"


def check_numbers(house: House) -> Complaints:
    """Check that an expression contains no limits, only 0, 1 and explained numbers."""
    allowed = (0, 1, *EXPLAINED_NUMBERS)
    judged = (rule for rule in house.book.rules if rule.name not in NUMBERS_THAT_NAME)
    for rule in (rule for rule in judged if not is_threshold(rule.name)):
        for node in walk(rule.parse()):
            if isinstance(node, NumberLiteral) and abs(node.val) not in allowed:
                yield f"{rule.name}: {write(node)} is neither a threshold nor explained"


def check_thresholds(house: House) -> Complaints:
    """Check that each threshold is a number, has a comment, is named after an alert and is used."""
    used = {name for rule in house.book.rules for name in read_names(rule.parse())}
    recorded = [rule.name for rule in house.book.thresholds]
    subjects = {write_snake(alert.name) for alert in house.book.alerts}
    for name in sorted(filter(is_threshold, used - set(recorded))):
        yield f"{name} is used and not recorded"
    for rule in house.book.thresholds:
        _, subject, *what = rule.name.split(":")
        if rule.group != "thresholds" or subject not in subjects or len(what) != 1:
            yield f"{rule.name} is not threshold:<alert>:<what_and_unit> in group thresholds"
        if not re.fullmatch(r"vector\(-?[0-9.e]+\)", rule.expr.strip()):
            yield f"{rule.name} is not a number: {rule.expr}"
        if rule.name not in used and rule.name not in READ_BY_THE_EXPORTER:
            yield f"{rule.name} is used by no rule"
        if not rule.comment:
            yield f"{rule.name} has no reason above it"
        if recorded.count(rule.name) > 1:
            yield f"{rule.name} is recorded twice"


def write_snake(name: str) -> str:
    """Return the snake case of an alert's name: HPUHighTemperature is hpu_high_temperature."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
