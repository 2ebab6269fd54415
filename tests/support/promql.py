"""Functions that write a PromQL syntax tree as text, with one part changed if desired.

The parser returns a tree without source positions, so a change is made while the tree is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TypeAlias

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifierType,
    Matcher,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorMatchCardinality,
    VectorSelector,
    display_duration,
)

Node: TypeAlias = (
    AggregateExpr
    | BinaryExpr
    | Call
    | MatrixSelector
    | NumberLiteral
    | ParenExpr
    | StringLiteral
    | SubqueryExpr
    | UnaryExpr
    | VectorSelector
)

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
SETS = ("and", "or", "unless")
MATCH_OPERATORS = (
    (MatchOp.Equal, "="),
    (MatchOp.NotEqual, "!="),
    (MatchOp.Re, "=~"),
    (MatchOp.NotRe, "!~"),
)


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct parts of an expression, in the order of the source."""
    match node:
        case BinaryExpr():
            return node.lhs, node.rhs  # type: ignore[return-value]  # Expr has no union
        case AggregateExpr():
            return (node.expr,) if node.param is None else (node.param, node.expr)  # type: ignore[return-value]
        case Call():
            return tuple(node.args)
        case MatrixSelector():
            return (node.vector_selector,)
        case ParenExpr() | UnaryExpr() | SubqueryExpr():
            return (node.expr,)  # type: ignore[return-value]
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield an expression and all its parts."""
    yield node
    for child in children(node):
        yield from walk(child)


def write(node: Node) -> str:
    """Write an expression as text."""
    return write_around(node, [write(child) for child in children(node)])


def write_around(node: Node, parts: Sequence[str]) -> str:  # noqa: PLR0911 - one for each kind
    """Write an expression around the given texts of its parts."""
    match node:
        case BinaryExpr():
            return write_binary(node, parts)
        case AggregateExpr():
            return f"{write_aggregation(node)} ({', '.join(parts)})"
        case Call():
            return f"{node.func.name}({', '.join(parts)})"
        case MatrixSelector():
            return write_range(parts[0], node.range)
        case SubqueryExpr():
            return write_subquery(node, parts[0], node.range)
        case ParenExpr():
            return f"({parts[0]})"
        case UnaryExpr():
            return f"-{parts[0]}"
        case VectorSelector():
            return write_selector(node, node.matchers.matchers)
        case StringLiteral():
            return quote(node.val)
    return str(node).replace("inf", "Inf")


def write_binary(
    node: BinaryExpr,
    parts: Sequence[str],
    *,
    operator: str | None = None,
    labels: Sequence[str] | None = None,
) -> str:
    """Write an operation between two expressions.

    Args:
        node: The operation.
        parts: The texts of its two sides.
        operator: An operator that replaces the operator of the node.
        labels: Labels that replace those of the node in `on` or `ignoring`.
    """
    words = [parts[0], operator or str(node.op)]
    modifier = node.modifier
    if modifier is not None and modifier.return_bool:
        words.append("bool")
    if modifier is not None and modifier.matching is not None:
        word = "on" if modifier.matching.type == LabelModifierType.Include else "ignoring"
        names = modifier.matching.labels if labels is None else labels
        words.append(f"{word} ({', '.join(names)})")
    if modifier is not None and modifier.card == VectorMatchCardinality.ManyToOne:
        words.append(f"group_left ({', '.join(modifier.group_labels or [])})")
    if modifier is not None and modifier.card == VectorMatchCardinality.OneToMany:
        words.append(f"group_right ({', '.join(modifier.group_labels or [])})")
    return " ".join([*words, parts[1]])


def write_aggregation(node: AggregateExpr) -> str:
    """Write the operator and the grouping of an aggregation, without its arguments."""
    if node.modifier is None:
        return str(node.op)
    word = "by" if node.modifier.type == AggModifierType.By else "without"
    return f"{node.op} {word} ({', '.join(node.modifier.labels)})"


def write_selector(
    node: VectorSelector, matchers: Sequence[Matcher], *, offset: bool = True
) -> str:
    """Write a selector with the given matchers, with or without its offset."""
    if node.at is not None:
        raise ValueError(f"@ is not understood: {node}")
    written = ", ".join(write_matcher(matcher) for matcher in matchers)
    text = (node.name or "") + (f"{{{written}}}" if written else "")
    return text + (write_offset(node.offset) if offset else "")


def write_range(selector: str, range_: timedelta) -> str:
    """Write a range before the offset of a selector, where PromQL expects the range."""
    offset = re.search(r"( offset -?[0-9a-z]+)?$", selector)
    assert offset is not None
    return f"{selector[: offset.start()]}[{display_duration(range_)}]{offset[0]}"


def write_subquery(node: SubqueryExpr, inner: str, range_: timedelta) -> str:
    """Write a subquery over a range."""
    step = "" if node.step is None else display_duration(node.step)
    return f"{inner}[{display_duration(range_)}:{step}]{write_offset(node.offset)}"


def write_offset(offset: timedelta | None) -> str:
    """Write an offset with a leading space, or an empty text for no offset."""
    if not offset:
        return ""
    sign = "-" if offset < timedelta(0) else ""
    return f" offset {sign}{display_duration(abs(offset))}"


def write_matcher(matcher: Matcher) -> str:
    """Write one label matcher."""
    (operator,) = (word for kind, word in MATCH_OPERATORS if kind == matcher.op)
    return f"{matcher.name}{operator}{quote(matcher.value)}"


def quote(text: str) -> str:
    """Write a string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
