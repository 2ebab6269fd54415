"""The rule files of Prometheus as data: the rules and their dependencies on each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import promql_parser
import yaml
from promql_parser import VectorSelector

from tests.support.promql import Node, walk

ROOT = Path(__file__).parents[2]
RULES = ROOT / "prometheus/rules"
TESTS = ROOT / "tests/rules"

# A query in a template has one of three forms: `query "…"`, `query (printf "…" …)` or
# `printf "…" … | query`.
_STRING = r"""(?:"((?:[^"\\]|\\.)*)"|`([^`]*)`)"""
_QUERY_OF = re.compile(rf"\bquery \(?(?:printf )?{_STRING}")
_PIPED_QUERY = re.compile(rf"{_STRING}(?=[^{{}}\"]*\| *query\b)")


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # if built
    """A YAML loader that reads every scalar as a string and supports merge keys."""

    yaml_implicit_resolvers: ClassVar = {"<": [("tag:yaml.org,2002:merge", re.compile("<<$"))]}


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule of one group.

    Attributes:
        file: The file that contains the rule.
        group: The name of the group.
        name: The name of the recorded series or of the alert.
        alert: Whether the rule is an alert.
        expr: The PromQL expression.
        for_: The value of `for` as written; empty if the field is absent.
        keep_firing_for: The value of `keep_firing_for` as written; empty if the field is absent.
        labels: The labels that the rule adds to its series.
        annotations: The annotation templates of an alert.
        comment: The lines of the comment directly above the rule, without `#`.
    """

    file: Path
    group: str
    name: str
    alert: bool
    expr: str
    for_: str = ""
    keep_firing_for: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    comment: tuple[str, ...] = ()

    def parse(self) -> Node:
        """Parse the expression of the rule."""
        parsed: Node = promql_parser.parse(self.expr)  # type: ignore[assignment]  # has no union
        return parsed

    def parse_all(self) -> tuple[Node, ...]:
        """Parse the expression and the queries in the annotations, with "*" for `%q`."""
        texts = "\n".join(self.annotations.values())
        queries = [*_QUERY_OF.findall(texts), *_PIPED_QUERY.findall(texts)]
        written = [plain or re.sub(r"\\(.)", r"\1", escaped) for escaped, plain in queries]
        filled = [re.sub(r"%[svd]", "0", text.replace("%q", '"*"')) for text in written]
        return (self.parse(), *map(promql_parser.parse, filled))  # type: ignore[arg-type]

    def describe(self) -> dict[str, object]:
        """Return the rule as an entry of a rule file."""
        document: dict[str, object] = {"alert" if self.alert else "record": self.name}
        document["expr"] = self.expr
        document |= {"for": self.for_} if self.for_ else {}
        document |= {"keep_firing_for": self.keep_firing_for} if self.keep_firing_for else {}
        document |= {"labels": dict(self.labels)} if self.labels else {}
        document |= {"annotations": dict(self.annotations)} if self.annotations else {}
        return document


@dataclass(frozen=True, slots=True)
class Rulebook:
    """All rules of a directory, in the order of files and rules.

    Attributes:
        rules: The rules.
    """

    rules: tuple[Rule, ...]

    @property
    def alerts(self) -> tuple[Rule, ...]:
        """Return the alerts."""
        return tuple(rule for rule in self.rules if rule.alert)

    @property
    def records(self) -> tuple[Rule, ...]:
        """Return the recording rules, including the thresholds."""
        return tuple(rule for rule in self.rules if not rule.alert)

    @property
    def thresholds(self) -> tuple[Rule, ...]:
        """Return the thresholds."""
        return tuple(rule for rule in self.records if is_threshold(rule.name))

    def find_record(self, name: str) -> tuple[Rule, ...]:
        """Return all recording rules with this name; a name may have several rules."""
        return tuple(rule for rule in self.records if rule.name == name)

    def find_needs(self, rule: Rule) -> frozenset[str]:
        """Return the names of the recording rules that a rule needs, directly or indirectly."""
        found: set[str] = set()
        waiting = [rule]
        while waiting:
            for expression in waiting.pop().parse_all():
                records = list_selected(expression, self.records)
                waiting.extend(record for record in records if record.name not in found)
                found |= {record.name for record in records}
        return frozenset(found)


def list_selected(expression: Node, rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules whose names an expression selects, by name or by a pattern."""
    selectors = [node for node in walk(expression) if isinstance(node, VectorSelector)]
    patterns = [m.value for one in selectors for m in one.matchers.matchers if m.name == "__name__"]
    names = {selector.name for selector in selectors}
    return [
        rule
        for rule in rules
        if rule.name in names or any(re.fullmatch(each, rule.name) for each in patterns)
    ]


def is_threshold(name: str) -> bool:
    """Return whether a recording rule is a threshold."""
    return name.startswith("threshold:")


def read_names(expression: Node) -> frozenset[str]:
    """Return the names of all metrics and recording rules that an expression selects."""
    selectors = (node for node in walk(expression) if isinstance(node, VectorSelector))
    return frozenset(selector.name for selector in selectors if selector.name)


def read_rulebook(directory: Path = RULES) -> Rulebook:
    """Read every rule file of a directory.

    Raises:
        ValueError: The expression or a query of a rule cannot be parsed.
    """
    return Rulebook(
        tuple(rule for path in sorted(directory.glob("*.yml")) for rule in _read_file(path))
    )


def _read_file(path: Path) -> Iterator[Rule]:
    text = path.read_text(encoding="utf-8")
    document = yaml.load(text, Loader)
    for group in document["groups"]:
        for entry in group.get("rules") or ():
            rule = _read_rule(path, group["name"], entry, text)
            try:
                rule.parse_all()
            except ValueError as error:
                raise ValueError(f"{path.name}: {rule.name}: {error}") from error
            yield rule


def _read_rule(path: Path, group: str, entry: Mapping[str, object], text: str) -> Rule:
    name = str(entry.get("alert") or entry["record"])
    return Rule(
        file=path,
        group=group,
        name=name,
        alert="alert" in entry,
        expr=str(entry["expr"]),
        for_=str(entry.get("for", "")),
        keep_firing_for=str(entry.get("keep_firing_for", "")),
        labels=dict(entry.get("labels") or {}),  # type: ignore[call-overload]  # of a document
        annotations=dict(entry.get("annotations") or {}),  # type: ignore[call-overload]
        comment=_read_comment(name, text),
    )


def _read_comment(name: str, text: str) -> tuple[str, ...]:
    """Return the comment directly above a rule; a line of dashes ends the comment."""
    lines = text.splitlines()
    start = re.compile(rf"\s*- (?:record|alert): [\"']?{re.escape(name)}[\"']?\s*$")
    places = [number for number, line in enumerate(lines) if start.match(line)]
    comment: list[str] = []
    for line in reversed(lines[: places[0]] if places else []):
        found = re.match(r"\s*#(?! ?-{5}) ?(.*)$", line)
        if not found:
            break
        comment.insert(0, found[1])
    return tuple(comment)


def write_rules(rules: Iterable[Rule], directory: Path) -> None:
    """Write rules into a directory, one file for each group, in JSON, which is valid YAML."""
    groups: dict[str, list[dict[str, object]]] = {}
    for rule in rules:
        groups.setdefault(rule.group, []).append(rule.describe())
    for name, entries in groups.items():
        document = {"groups": [{"name": name, "rules": entries}]}
        path = directory / f"{name}.yml"
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
