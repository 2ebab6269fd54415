"""Mutants of Prometheus rules, each deliberately broken in one place."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Matcher,
    MatchOp,
    MatrixSelector,
    SubqueryExpr,
    VectorSelector,
    display_duration,
    parse_duration,
)

from tests.support.promql import (
    SETS,
    Node,
    children,
    write,
    write_around,
    write_binary,
    write_offset,
    write_range,
    write_selector,
    write_subquery,
)
from tests.support.rulebook import Rule, Rulebook, is_threshold, read_names

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "!=", "!=": "=="}
NEGATED = (
    (MatchOp.Equal, MatchOp.NotEqual),
    (MatchOp.NotEqual, MatchOp.Equal),
    (MatchOp.Re, MatchOp.NotRe),
    (MatchOp.NotRe, MatchOp.Re),
)
SWAPPED = {
    "avg_over_time": "max_over_time",
    "max_over_time": "min_over_time",
    "min_over_time": "max_over_time",
    "max": "min",
    "min": "max",
    "avg": "max",
    "sum": "max",
}


@dataclass(frozen=True, slots=True, eq=False)
class Mutant:
    """One rule that is broken in one place.

    Attributes:
        alerts: The alerts whose tests may detect the mutant; the list of mutants uses the first.
        what: A description of the change that is unique among the mutants of the rule.
        rule: The broken rule.
        original: The unchanged rule.
    """

    alerts: tuple[str, ...]
    what: str
    rule: Rule
    original: Rule

    @property
    def name(self) -> str:
        """Return the name of the mutant in lists."""
        return f"{self.original.name}: {self.what}"

    @property
    def change(self) -> str:
        """Return the text of the broken part."""
        if self.rule.expr != self.original.expr:
            return self.rule.expr
        return f"for: {self.rule.for_ or '-'}, keep_firing_for: {self.rule.keep_firing_for or '-'}"


def vary(node: Node) -> Iterator[tuple[str, str]]:
    """Break an expression in one place at a time; yield each change and the changed expression."""
    yield from ((f"{what} in `{_write_short(node)}`", text) for what, text in _vary_here(node))
    parts = [write(child) for child in children(node)]
    for number, child in enumerate(children(node)):
        for what, text in vary(child):
            yield what, write_around(node, [*parts[:number], text, *parts[number + 1 :]])


def _vary_here(node: Node) -> Iterator[tuple[str, str]]:
    match node:
        case BinaryExpr():
            yield from _vary_operation(node)
        case MatrixSelector():
            for word, range_ in (("doubled", node.range * 2), ("halved", node.range / 2)):
                yield f"range {word}", write_range(write(node.vector_selector), range_)
        case SubqueryExpr() if node.range is not None:
            for word, range_ in (("doubled", node.range * 2), ("halved", node.range / 2)):
                (inner,) = (write(child) for child in children(node))
                yield f"range {word}", write_subquery(node, inner, range_)
        case VectorSelector():
            yield from _vary_selector(node)
        case Call() if node.func.name in SWAPPED:
            new = SWAPPED[node.func.name]
            yield f"{new} for {node.func.name}", re.sub(r"^\w+", new, write(node))
        case AggregateExpr() if str(node.op) in SWAPPED:
            new = SWAPPED[str(node.op)]
            yield f"{new} for {node.op}", re.sub(r"^\w+", new, write(node))


def _vary_operation(node: BinaryExpr) -> Iterator[tuple[str, str]]:
    operator = str(node.op)
    left, right = (write(child) for child in children(node))
    if operator in FLIPPED:
        new = FLIPPED[operator]
        yield f"{new} for {operator}", write_binary(node, (left, right), operator=new)
    if operator in ("and", "unless"):
        new = "unless" if operator == "and" else "and"
        yield f"{new} for {operator}", write_binary(node, (left, right), operator=new)
        yield f"{operator} dropped", left
    if operator == "or":
        yield "left arm dropped", right
        yield "right arm dropped", left
    if node.modifier is not None and node.modifier.matching is not None:
        labels = list(node.modifier.matching.labels)
        for label in labels:
            rest = [name for name in labels if name != label]
            yield f"label {label} dropped", write_binary(node, (left, right), labels=rest)


def _vary_selector(node: VectorSelector) -> Iterator[tuple[str, str]]:
    matchers = list(node.matchers.matchers)
    for number, matcher in enumerate(matchers):
        rest = [*matchers[:number], *matchers[number + 1 :]]
        yield f"{matcher.name} dropped", write_selector(node, rest)
        (negation,) = (negation for operator, negation in NEGATED if operator == matcher.op)
        negated = Matcher(negation, matcher.name, matcher.value)
        text = write_selector(node, [*matchers[:number], negated, *matchers[number + 1 :]])
        yield f"{matcher.name} negated", text
    if node.offset:
        yield (
            f"{write_offset(node.offset).strip()} dropped",
            write_selector(node, matchers, offset=False),
        )


def _write_short(node: Node, longest: int = 110) -> str:
    """Write an expression in short: shorten long texts, and omit the left side of a join."""
    text = write(node)
    if isinstance(node, BinaryExpr) and str(node.op) in SETS:
        text = write_around(node, ["…", write(children(node)[1])])
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-longest // 2 :]}"


def break_rule(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Break a rule in one place at a time; yield each change and the broken rule."""
    if is_threshold(rule.name):
        yield from _break_threshold(rule)
        return
    counts: Counter[str] = Counter()
    for what, text in vary(rule.parse()):
        counts[what] += 1
        suffix = f" ({counts[what]})" if counts[what] > 1 else ""
        if _can_be_parsed(text):
            yield what + suffix, dataclasses.replace(rule, expr=text)
    for word, field, text in (
        ("for", "for_", rule.for_),
        ("keep_firing_for", "keep_firing_for", rule.keep_firing_for),
    ):
        for what, changed in _vary_duration(text):
            yield f"{word} {what}", dataclasses.replace(rule, **{field: changed})


def _break_threshold(rule: Rule) -> Iterator[tuple[str, Rule]]:
    found = re.fullmatch(r"vector\((-?[\d.e+-]+)\)", rule.expr.strip())
    if found and float(found[1]) != 0:
        for what, factor in (("doubled", 2), ("halved", 0.5)):
            text = f"vector({float(found[1]) * factor:.12g})"
            yield what, dataclasses.replace(rule, expr=text)


def _vary_duration(text: str) -> Iterator[tuple[str, str]]:
    if text and (duration := parse_duration(text)):
        yield "dropped", ""
        yield "doubled", display_duration(duration * 2)
        yield "halved", display_duration(duration / 2)


def _can_be_parsed(text: str) -> bool:
    try:
        promql_parser.parse(text)
    except ValueError:
        return False
    return True


def list_mutants(book: Rulebook, alerts: Sequence[str]) -> tuple[Mutant, ...]:
    """Return every mutant of these alerts and of the recording rules that they need.

    A threshold is broken once for each alert whose expression names it. Any other recording rule is
    broken once for all alerts that need it.
    """
    needs = {rule.name: book.find_needs(rule) for rule in book.alerts}
    own = {rule.name: read_names(rule.parse()) for rule in book.alerts}
    mutants = []
    for alert in (rule for rule in book.alerts if rule.name in alerts):
        rules = [alert, *(rule for rule in book.thresholds if rule.name in own[alert.name])]
        mutants += [
            _name((alert.name,), rule, *broken) for rule in rules for broken in break_rule(rule)
        ]
    for record in book.records:
        users = tuple(name for name in needs if record.name in needs[name])
        direct = is_threshold(record.name) and any(record.name in own[name] for name in users)
        if set(users) & set(alerts) and not direct:
            mutants += [_name(users, record, *broken) for broken in break_rule(record)]
    return tuple(mutants)


def _name(alerts: tuple[str, ...], original: Rule, what: str, rule: Rule) -> Mutant:
    return Mutant(alerts, what, rule, original)


def choose_share(mutants: Iterable[Mutant], *, one_in: int = 10) -> tuple[Mutant, ...]:
    """Return about one in `one_in` mutants, always the same selection."""
    return tuple(m for m in mutants if zlib.crc32(f"{m.alerts[0]} {m.name}".encode()) % one_in == 0)
