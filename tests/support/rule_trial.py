"""A runner for the tests of alerts that loads only the rules they need, unchanged or broken.

promtool evaluates every loaded rule at every instant, so each run loads only the relevant rules. A
broken rule is tried against one group of tests at a time, the fastest group first, until a test
detects the change.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import promql_parser
import yaml
from promql_parser import VectorSelector, parse_duration

from tests.support.promql import Node, walk
from tests.support.rule_breaking import Mutant
from tests.support.rulebook import TESTS, Loader, Rule, Rulebook, is_threshold, list_selected

# Enough files to make promtool's start-up time negligible, but few enough to use both processors.
_FILES_OF_A_CALL = 5
_PROCESSES = 2
_LONGEST_CALL_SECONDS = 900
# Version 2 prints each file's name first, version 3 does not; both keep the order of the arguments.
_VERDICT = re.compile(r"^  (SUCCESS|FAILED:)$", re.MULTILINE)
_BARE = ("name", "interval", "input_series", "external_labels", "external_url")


@dataclass(frozen=True, slots=True)
class Question:
    """A test file and the rules that its run loads.

    Attributes:
        file: The test file, which loads `rules.yml` from its own directory.
        rules: The unchanged rules.
        cost: The estimated time for each assertion, relative to other test files.
    """

    file: Path
    rules: tuple[Rule, ...]
    cost: float = 0.0


class Trial:
    """A runner for the tests of alerts.

    Args:
        book: The rules.
        tests: The folder of the test files `<Alert>.yml`.
        promtool: The path of promtool.
        directory: An empty working directory, preferably in memory.
    """

    def __init__(
        self, book: Rulebook, *, promtool: str, directory: Path, tests: Path = TESTS
    ) -> None:
        self._book = book
        self._tests = tests
        self._promtool = promtool
        self._directory = directory
        self._numbers = count()
        self._questions: dict[str, tuple[Question, ...]] = {}

    def run_whole(self, alerts: Iterable[str]) -> dict[str, str]:
        """Run the complete test files of the given alerts and return the failures by alert."""
        asked = [(alert, q, None) for alert in alerts for q in self._ask_everything(alert)]
        return {alert: words for alert, words in self._run(asked) if words}

    def judge(self, mutants: Iterable[Mutant], wanted: Container[str]) -> dict[Mutant, str]:
        """Return the first test failure for each mutant; a survivor has an empty text.

        A test that fails with the unchanged rules too detects nothing.

        Raises:
            ValueError: A test of a wanted alert fails with the unchanged rules too.
        """
        waiting = {
            mutant: sorted(
                ((alert, q) for alert in mutant.alerts for q in self._list_questions(alert)),
                key=lambda asked: asked[1].cost,
            )
            for mutant in mutants
        }
        verdicts: dict[Mutant, str] = dict.fromkeys(waiting, "")
        sound: dict[Question, bool] = {}
        while waiting := {mutant: left for mutant, left in waiting.items() if left}:
            asked = {mutant: left.pop(0) for mutant, left in waiting.items()}
            said = self._run(
                [(mutant, question, mutant) for mutant, (_, question) in asked.items()]
            )
            noticed = {mutant: words for mutant, words in said if words}
            new = {asked[mutant]: None for mutant in noticed if asked[mutant][1] not in sound}
            for (alert, question), words in self._run([(key, key[1], None) for key in new]):
                if words and alert in wanted:
                    raise ValueError(
                        f"these tests fail with the rules as they are:\n{alert}: {words}"
                    )
                sound[question] = not words
            verdicts |= {m: words for m, words in noticed.items() if sound[asked[m][1]]}
            waiting = {m: left for m, left in waiting.items() if not verdicts[m]}
        return verdicts

    def _list_questions(self, alert: str) -> tuple[Question, ...]:
        """Return a question for each group of tests of an alert; none without a test file."""
        if alert not in self._questions:
            self._questions[alert] = tuple(self._make_questions(alert))
        return self._questions[alert]

    def _make_questions(self, alert: str) -> Iterable[Question]:
        if not (self._tests / f"{alert}.yml").exists():
            return
        document = self._read(alert)
        (rule,) = (rule for rule in self._book.alerts if rule.name == alert)
        needed = {alert} | self._book.find_needs(rule)
        rules = self._choose_rules(document, needed)
        others = {rule.name for rule in self._book.rules} - needed
        groups = [_strip(group, alert, others) for group in document["tests"]]  # type: ignore[attr-defined]
        for group in filter(_asks, groups):
            question = self._write_question({**document, "tests": [group]}, rules)
            yield replace(question, cost=_estimate(group, str(document["evaluation_interval"])))

    def _ask_everything(self, alert: str) -> Iterable[Question]:
        """Return questions for all groups of tests; groups that need the same rules share one."""
        document = self._read(alert)
        shared: dict[tuple[Rule, ...], list[dict[str, object]]] = {}
        for group in map(_convert, document["tests"]):  # type: ignore[call-overload]
            needed = _find_asked(group, self._book)
            needed |= {
                n for r in self._book.alerts if r.name in needed for n in self._book.find_needs(r)
            }
            shared.setdefault(self._choose_rules(document, needed), []).append(group)
        for rules, groups in shared.items():
            yield self._write_question({**document, "tests": groups}, rules)

    def _read(self, alert: str) -> dict[str, object]:
        text = (self._tests / f"{alert}.yml").read_text(encoding="utf-8")
        document: dict[str, object] = yaml.load(text, Loader)
        return document

    def _choose_rules(self, document: Mapping[str, object], needed: set[str]) -> tuple[Rule, ...]:
        """Return the needed rules from the rule files that a test file loads."""
        names: Iterable[str] = document["rule_files"]  # type: ignore[assignment]
        patterns = [os.path.normpath(self._tests / name) for name in names]
        return tuple(
            rule
            for rule in self._book.rules
            if rule.name in needed and any(rule.file.match(pattern) for pattern in patterns)
        )

    def _write_question(self, document: Mapping[str, object], rules: tuple[Rule, ...]) -> Question:
        file = self._directory / f"test-{next(self._numbers)}.yml"
        _write(file, {**document, "rule_files": ["rules.yml"]})
        return Question(file, rules)

    def _run(self, asked: Sequence[tuple[object, Question, Mutant | None]]) -> list:
        """Run questions and return the key of each with promtool's failure message, or ""."""
        starts = range(0, len(asked), _FILES_OF_A_CALL)
        parts = [asked[start : start + _FILES_OF_A_CALL] for start in starts]
        with ThreadPoolExecutor(_PROCESSES) as pool:
            return [answer for part in pool.map(self._call, parts) for answer in part]

    def _call(self, asked: Sequence[tuple[object, Question, Mutant | None]]) -> list:
        files = [self._prepare(question, mutant) for _, question, mutant in asked]
        tested = subprocess.run(
            [self._promtool, "test", "rules", *map(str, files)],
            # Fewer garbage collections save a fifth of promtool's time.
            env={**os.environ, "TMPDIR": str(self._directory), "GOGC": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # promtool writes failures to it, in the order of the files
            check=False,
            text=True,
            timeout=_LONGEST_CALL_SECONDS,
        )
        said = _VERDICT.split(tested.stdout)
        if len(said) != 1 + 2 * len(files):
            raise ValueError(f"promtool says something else than one verdict a file: {said}")
        words = map(_find_failure, said[1::2], said[2::2])
        for file in files:
            shutil.rmtree(file.parent)
        return [(key, failure) for (key, _, _), failure in zip(asked, words, strict=True)]

    def _prepare(self, question: Question, mutant: Mutant | None) -> Path:
        directory = self._directory / f"run-{next(self._numbers)}"
        directory.mkdir()
        groups: dict[str, list[dict[str, object]]] = {}
        for rule in question.rules:
            chosen = mutant.rule if mutant and rule is mutant.original else rule
            groups.setdefault(rule.group, []).append(chosen.describe())
        written = [{"name": name, "rules": rules} for name, rules in groups.items()]
        _write(directory / "rules.yml", {"groups": written})
        (directory / question.file.name).symlink_to(question.file)
        return directory / question.file.name


def _strip(group: Mapping[str, object], alert: str, others: set[str]) -> dict[str, object]:
    """Return a group of tests with only the assertions about an alert and the rules it needs."""
    group = _convert(group)
    of_alert = [test for test in _get(group, "alert_rule_test") if test["alertname"] == alert]
    of_records = [t for t in _get(group, "promql_expr_test") if _asks_only_of(t, alert, others)]
    stripped = {key: value for key, value in group.items() if key in _BARE}
    return {**stripped, "alert_rule_test": of_alert, "promql_expr_test": of_records}


def _convert(group: Mapping[str, object]) -> dict[str, object]:
    """Return a group of tests with the expected sample values as numbers."""
    converted = dict(group)
    converted["promql_expr_test"] = [
        {
            **test,
            "exp_samples": [{**s, "value": float(s["value"])} for s in _get(test, "exp_samples")],
        }
        for test in _get(group, "promql_expr_test")
    ]
    return converted


def _get(of: Mapping[str, object], name: str) -> list[dict[str, str]]:
    return list(of.get(name) or ())  # type: ignore[call-overload]


def _asks(group: Mapping[str, object]) -> bool:
    return bool(group["alert_rule_test"] or group["promql_expr_test"])


def _estimate(group: Mapping[str, object], interval: str) -> float:
    """Estimate the time of a group of tests for each assertion, from evaluations and series."""
    tests = [*_get(group, "alert_rule_test"), *_get(group, "promql_expr_test")]
    times = [test["eval_time"] for test in tests if not test["eval_time"].startswith("0")]
    last = max((parse_duration(time).total_seconds() for time in times), default=0.0)
    cost = last / parse_duration(interval).total_seconds() * (1 + len(_get(group, "input_series")))
    return cost / (1 + len(tests))  # a group with more assertions detects more mutants


def _asks_only_of(test: Mapping[str, object], alert: str, others: set[str]) -> bool:
    """Return whether a test of an expression is valid if only this alert is loaded.

    A test that reads a threshold directly proves nothing about the alert and is left out.
    """
    for selector in _find_selectors(test):
        expects = selector.name == "ALERTS" and bool(test["exp_samples"])
        if expects and _state(selector, "alertname") != [alert]:
            return False
        if selector.name in others or is_threshold(selector.name or ""):
            return False
    return True


def _find_asked(group: Mapping[str, object], book: Rulebook) -> set[str]:
    """Return the names of the alerts and recording rules that a group of tests queries."""
    asked = {test["alertname"] for test in _get(group, "alert_rule_test")}
    for test in _get(group, "promql_expr_test"):
        expression = _parse(test)
        asked |= {rule.name for rule in list_selected(expression, book.records)}
        for selector in _find_selectors(test):
            if (selector.name or "").startswith("ALERTS"):
                names = _state(selector, "alertname") or [rule.name for rule in book.alerts]
                components = _state(selector, "component") or [rule.group for rule in book.alerts]
                alerts = (rule for rule in book.alerts if rule.group in components)
                asked |= {rule.name for rule in alerts if rule.name in names}
    return asked


def _parse(test: Mapping[str, object]) -> Node:
    parsed: Node = promql_parser.parse(str(test["expr"]))  # type: ignore[assignment]  # no union
    return parsed


def _find_selectors(test: Mapping[str, object]) -> list[VectorSelector]:
    return [node for node in walk(_parse(test)) if isinstance(node, VectorSelector)]


def _state(selector: VectorSelector, label: str) -> list[str]:
    """Return the values that the matchers of a selector state for a label, without patterns."""
    return [m.value for m in selector.matchers.matchers if m.name == label and "=~" not in str(m)]


def _find_failure(verdict: str, words: str) -> str:
    said = re.sub(r"^Unit Testing: .*$", "", words, flags=re.MULTILINE).strip()
    return "" if verdict == "SUCCESS" else f"{verdict}\n    {said}"


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
