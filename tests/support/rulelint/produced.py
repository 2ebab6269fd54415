"""The labels that the result of an expression can have."""

from __future__ import annotations

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifier,
    LabelModifierType,
    MatchOp,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    UnaryExpr,
    VectorMatchCardinality,
    VectorSelector,
)

from tests.support.promql import SETS, Node, children
from tests.support.rulebook import Rule, is_threshold
from tests.support.rulelint.house import House
from tests.support.rulelint.metrics import TARGET_LABELS

_NO_LABELS: frozenset[str] = frozenset()


def find_labels_of_rule(rule: Rule, house: House) -> frozenset[str]:
    """Return the labels that a rule's series can have."""
    return find_labels(rule.parse(), house) | frozenset(rule.labels)


def find_labels(node: Node, house: House) -> frozenset[str]:
    """Return the labels that an expression's series can have; a number has no labels."""
    match node:
        case VectorSelector():
            return _find_labels_of_name(node.name or "", house)
        case Call():
            return _find_labels_of_call(node, house)
        case AggregateExpr():
            return _find_labels_of_aggregation(node, house)
        case BinaryExpr():
            return _find_labels_of_operation(node, house)
    parts = [find_labels(child, house) for child in children(node)]
    return frozenset().union(*parts)


def _find_labels_of_name(name: str, house: House) -> frozenset[str]:
    if records := house.book.find_record(name):
        return frozenset().union(*(find_labels_of_rule(record, house) for record in records))
    metric = house.find_metric(name)
    return TARGET_LABELS if metric is None else metric.labels


def _find_labels_of_call(node: Call, house: House) -> frozenset[str]:
    name, arguments = node.func.name, children(node)
    if name in ("scalar", "vector", "time"):
        return _NO_LABELS
    if name in ("absent", "absent_over_time"):
        return _find_stated_labels(arguments[0])
    labels = frozenset().union(*(find_labels(argument, house) for argument in arguments))
    if name in ("label_replace", "label_join"):
        (target,) = (part.val for part in arguments[1:2] if isinstance(part, StringLiteral))
        return labels | {target}
    return labels - {"le"} if name == "histogram_quantile" else labels


def _find_stated_labels(node: Node) -> frozenset[str]:
    """Return the labels that the result of `absent` has: those with an equality matcher."""
    if isinstance(node, VectorSelector):
        matchers = node.matchers.matchers
        return frozenset(matcher.name for matcher in matchers if matcher.op == MatchOp.Equal)
    return frozenset().union(*(_find_stated_labels(child) for child in children(node)))


def _find_labels_of_aggregation(node: AggregateExpr, house: House) -> frozenset[str]:
    inner = find_labels(children(node)[-1], house)
    if str(node.op) in ("topk", "bottomk"):
        return inner
    named_here = children(node)[:1] if str(node.op) == "count_values" else ()
    added = frozenset(part.val for part in named_here if isinstance(part, StringLiteral))
    if node.modifier is None:
        return added
    named = frozenset(node.modifier.labels)
    kept = inner & named if node.modifier.type == AggModifierType.By else inner - named
    return kept | added


def _find_labels_of_operation(node: BinaryExpr, house: House) -> frozenset[str]:
    left, right = (find_labels(child, house) for child in children(node))
    if str(node.op) == "or" or not is_between_vectors(node):
        return left | right  # a number has no labels
    if str(node.op) in SETS or node.modifier is None:
        return left
    modifier = node.modifier
    if modifier.card == VectorMatchCardinality.ManyToOne:
        return left | frozenset(modifier.group_labels or ())
    if modifier.card == VectorMatchCardinality.OneToMany:
        return right | frozenset(modifier.group_labels or ())
    return left if modifier.matching is None else _choose(modifier.matching, left)


def _choose(matching: LabelModifier, labels: frozenset[str]) -> frozenset[str]:
    """Return the labels that remain after one-to-one matching."""
    named = frozenset(matching.labels)
    return labels & named if matching.type == LabelModifierType.Include else labels - named


def is_between_vectors(node: BinaryExpr) -> bool:
    """Return whether both sides of an operation are vectors."""
    return not any(is_scalar(child) for child in children(node))


def is_scalar(node: Node) -> bool:
    """Return whether an expression is a scalar and not a vector."""
    match node:
        case NumberLiteral():
            return True
        case Call():
            return node.func.name in ("scalar", "time")
        case ParenExpr() | UnaryExpr() | BinaryExpr():
            return all(is_scalar(child) for child in children(node))
    return False


def keeps_labels_of_target(rule: Rule, house: House) -> bool:
    """Return whether a rule keeps all labels of the target; thresholds are exempt."""
    return is_threshold(rule.name) or find_labels(rule.parse(), house) >= TARGET_LABELS
