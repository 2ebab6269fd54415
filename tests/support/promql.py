"""PromQL as a tree that can be written back, with one part of it written differently.

The parser gives a tree without positions; so a change is made while the tree is written.
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
    """Return the direct parts of an expression, in the order in which they are written."""
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
    """Return an expression and every part of it."""
    yield node
    for child in children(node):
        yield from walk(child)


def write(node: Node) -> str:
    """Write an expression."""
    return write_around(node, [write(child) for child in children(node)])


def write_around(node: Node, parts: Sequence[str]) -> str:  # noqa: PLR0911 - one for each kind
    """Write an expression around its parts, which are written already."""
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
        parts: Its two sides.
        operator: Another operator in place of its own.
        labels: Other labels in `on` or `ignoring` in place of its own.
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
    """Write an aggregation up to its arguments."""
    if node.modifier is None:
        return str(node.op)
    word = "by" if node.modifier.type == AggModifierType.By else "without"
    return f"{node.op} {word} ({', '.join(node.modifier.labels)})"


def write_selector(
    node: VectorSelector, matchers: Sequence[Matcher], *, offset: bool = True
) -> str:
    """Write a selector with these matchers, with its offset or without it."""
    if node.at is not None:
        raise ValueError(f"@ is not understood: {node}")
    written = ", ".join(write_matcher(matcher) for matcher in matchers)
    text = (node.name or "") + (f"{{{written}}}" if written else "")
    return text + (write_offset(node.offset) if offset else "")


def write_range(selector: str, range_: timedelta) -> str:
    """Write a range of a selector; PromQL wants the offset behind it."""
    offset = re.search(r"( offset -?[0-9a-z]+)?$", selector)
    assert offset is not None
    return f"{selector[: offset.start()]}[{display_duration(range_)}]{offset[0]}"


def write_subquery(node: SubqueryExpr, inner: str, range_: timedelta) -> str:
    """Write a subquery over a range."""
    step = "" if node.step is None else display_duration(node.step)
    return f"{inner}[{display_duration(range_)}:{step}]{write_offset(node.offset)}"


def write_offset(offset: timedelta | None) -> str:
    """Write an offset with the space before it; none is nothing."""
    if not offset:
        return ""
    sign = "-" if offset < timedelta(0) else ""
    return f" offset {sign}{display_duration(abs(offset))}"


def write_matcher(matcher: Matcher) -> str:
    """Write one label matcher."""
    (operator,) = (word for kind, word in MATCH_OPERATORS if kind == matcher.op)
    return f"{matcher.name}{operator}{quote(matcher.value)}"


def quote(text: str) -> str:
    """Write a string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
