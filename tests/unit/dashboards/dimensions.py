"""The physical dimension of a query's values, derived from metric names and arithmetic.

A dimension has a power for each base unit: watts are joules to the power of 1 and seconds to the
power of -1, and ratios and counts have no units. Moments are a separate base unit, whose difference
is seconds. A name such as `training_loss` has an unknown dimension, as has any result of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

from tests.support.promql import COMPARISONS, Node, children

Dimension = Mapping[str, int]

NONE: Dimension = MappingProxyType({})


def _of(**powers: int) -> Dimension:
    return MappingProxyType(powers)


MOMENT = _of(moment=1)
_DATE = _of(date=1)  # moments in milliseconds, as Grafana expects them
_SECONDS = _of(s=1)

_BY_WORD: Mapping[str, Dimension] = MappingProxyType(
    {
        "seconds": _SECONDS,
        "bytes": _of(byte=1),
        "joules": _of(joule=1),
        "watts": _of(joule=1, s=-1),
        "celsius": _of(celsius=1),
        "hertz": _of(s=-1),
        "percent": _of(percent=1),
        "ratio": NONE,
        "count": NONE,
    }
)
_BY_UNIT: Mapping[str, Dimension] = MappingProxyType(
    {
        "s": _SECONDS,
        "dtdurations": _SECONDS,
        "bytes": _of(byte=1),
        "decbytes": _of(byte=1),
        "Bps": _of(byte=1, s=-1),
        "binBps": _of(byte=1, s=-1),
        "joule": _of(joule=1),
        "watt": _of(joule=1, s=-1),
        "celsius": _of(celsius=1),
        "hertz": _of(s=-1),
        "cps": _of(s=-1),
        "iops": _of(s=-1),
        "pps": _of(s=-1),
        "reqps": _of(s=-1),
        "percent": _of(percent=1),
        "percentunit": NONE,
        "short": NONE,
        "none": NONE,
        "dateTimeFromNow": _DATE,
        "dateTimeAsIso": _DATE,
        "dateTimeAsLocal": _DATE,
        "dateTimeAsSystem": _DATE,
    }
)
_MOMENTS = re.compile(r"(timestamp|timestamp_in|time)_seconds(_total)?$")
_PER_SECOND = ("rate", "irate", "deriv")
_COUNT = ("count", "group", "count_values")
_COUNTING_CALLS = ("changes", "resets", "count_over_time", "present_over_time", "absent")
_MILLISECONDS, _PER_CENT = 1000, 100


def read_unit(unit: str) -> Dimension | None:
    """Return the dimension of a Grafana unit; None if the unit has no known dimension."""
    return _BY_UNIT.get(unit)


def read_name(name: str) -> Dimension | None:
    """Return the dimension that a metric's name indicates; None for an unknown dimension."""
    if _MOMENTS.search(name):
        return MOMENT
    if name.endswith("_speed_bytes"):
        return _BY_UNIT["Bps"]
    stem = re.sub(r"_(total|sum|bucket)$", "", name)
    words = [word for word in re.split(r"[_:]", stem) if word in _BY_WORD]
    is_rate = re.search(r"_per_second\b|:rate\d", name)
    return None if is_rate or not words else _BY_WORD[words[-1]]


def find_dimension(node: Node) -> Dimension | None:
    """Return the dimension of an expression's values; None for an unknown dimension."""
    parts = children(node)
    match node:
        case VectorSelector():
            return read_name(node.name or "")
        case ParenExpr() | UnaryExpr() | SubqueryExpr() | MatrixSelector():
            return find_dimension(parts[0])
        case AggregateExpr():
            return NONE if str(node.op) in _COUNT else find_dimension(parts[-1])
        case Call():
            return _find_of_call(node.func.name, parts)
        case BinaryExpr():
            return _find_of_operation(node, *parts)
    return NONE if isinstance(node, NumberLiteral) else None


def _find_of_call(name: str, parts: tuple[Node, ...]) -> Dimension | None:
    if name in ("time", "timestamp"):
        return MOMENT
    if name in _COUNTING_CALLS:
        return NONE
    values = parts[-1] if name in ("histogram_quantile", "quantile_over_time") else parts[0]
    inner = find_dimension(values)
    if name in _PER_SECOND and not _holds_buckets(values):
        return None if inner is None else _multiply(inner, _SECONDS, -1)
    return inner


def _holds_buckets(node: Node) -> bool:
    """Return whether an expression selects histogram buckets, whose values are counts."""
    if isinstance(node, VectorSelector):
        return (node.name or "").endswith("_bucket")
    return any(_holds_buckets(part) for part in children(node))


def _find_of_operation(node: BinaryExpr, left: Node, right: Node) -> Dimension | None:
    operator = str(node.op)
    if operator in COMPARISONS:
        is_bool = node.modifier is not None and node.modifier.return_bool
        return NONE if is_bool else find_dimension(left)
    if operator in ("and", "unless"):
        return find_dimension(left)
    one, other = find_dimension(left), find_dimension(right)
    if operator in ("*", "/"):
        return _scale(operator, (left, one), (right, other))
    if one is None or other is None:
        return None
    if operator == "-" and one == other == MOMENT:
        return _SECONDS
    return one if one == other or other in (NONE, _SECONDS) else other


def _scale(
    operator: str, left: tuple[Node, Dimension | None], right: tuple[Node, Dimension | None]
) -> Dimension | None:
    (_, one), (other_node, other) = left, right
    if operator == "/" and one == _BY_WORD["percent"] and _is_number(other_node, _PER_CENT):
        return NONE
    if operator == "*":
        for (node, _), (_, dimension) in ((left, right), (right, left)):
            if dimension == MOMENT and _is_number(node, _MILLISECONDS):
                return _DATE
            if _is_info(node):
                return dimension
            if _is_number(node, 0):  # a product with 0 only adds labels to the other addend
                return None
    if one is None or other is None:
        return None
    return _multiply(one, other, 1 if operator == "*" else -1)


def _is_number(node: Node, number: float) -> bool:
    return isinstance(node, NumberLiteral) and node.val == number


def _is_info(node: Node) -> bool:
    """Return whether an expression has the value 1 and only adds labels."""
    match node:
        case VectorSelector():
            return (node.name or "").endswith("_info")
        case BinaryExpr() if str(node.op) == "==":
            return True
        case ParenExpr() | AggregateExpr() | BinaryExpr():
            return _is_info(children(node)[-1 if isinstance(node, AggregateExpr) else 0])
        case Call():
            return node.func.name == "label_replace" and _is_info(children(node)[0])
    return False


def _multiply(one: Dimension, other: Dimension, power: int) -> Dimension:
    powers = {base: one.get(base, 0) + power * other.get(base, 0) for base in {*one, *other}}
    return MappingProxyType({base: exponent for base, exponent in powers.items() if exponent})


def write_dimension(dimension: Dimension) -> str:
    """Return a dimension as text, such as `byte/s`."""
    above = [base for base, power in sorted(dimension.items()) if power > 0]
    below = [base for base, power in sorted(dimension.items()) if power < 0]
    return (
        "·".join(above or ["1"]) + "".join(f"/{base}" for base in below)
        if dimension
        else "a number"
    )
