"""Replays a week of series through alert rules, in the rule engine of `promtool test rules`.

The engine itself evaluates recording rules, `for` and `keep_firing_for` once a minute. The test
file expects that no alert fires in any minute; promtool then reports the alerts of each minute in
which the expectation is wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

QUESTION = 'ALERTS{alertstate="firing",alertname!="Watchdog"}'
Rule = dict[str, Any]
Group = dict[str, Any]
_CONSTANT = re.compile(r"vector\([0-9.e+-]+\)")
_ANSWER = re.compile(r"time: (?P<time>\w+),\s+exp: nil\s+got: (?P<got>.*)")
_ALERT = re.compile(r'\{(__name__="ALERTS",[^}]*)\}')
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PART_OF_TIME = re.compile(r"(\d+)([wdhm])")
_MINUTES = {"w": 7 * 24 * 60, "d": 24 * 60, "h": 60, "m": 1}
# Comments, strings, label matchers in braces, and label lists behind keywords: none names a metric.
_NO_METRIC = re.compile(
    r"#.*|\{(?:\"[^\"]*\"|[^}\"])*\}|\"[^\"]*\"|\b(?:on|ignoring|by|without|group_left|group_right)\s*\([^)]*\)"
)
_METRIC = re.compile(r"(?<![\w:])[a-zA-Z_:][\w:]*(?![\w:]*\s*\()")
_OPERATORS = frozenset(
    {"and", "or", "unless", "bool", "offset", "on", "without", "by", "Inf", "NaN"}
)
_IGNORED = frozenset({"__name__", "alertstate", "alertname", "severity", "component", "job"})


@dataclass(frozen=True, slots=True, order=True)
class Episode:
    """A period in which an alert fired for one object.

    Attributes:
        alert: Name of the alert.
        severity: Severity of its rule.
        start: First minute in which the alert fired.
        end: First minute in which the alert no longer fired.
        labels: Labels of the object for which the alert fired.
    """

    alert: str
    severity: str
    start: int
    end: int
    labels: tuple[tuple[str, str], ...]

    @property
    def instance(self) -> str:
        """Name of the machine; empty if the alert is not about a machine."""
        return dict(self.labels).get("instance", "")

    def __str__(self) -> str:
        """Return a readable line with the time, duration, severity, alert and labels."""
        about = " ".join(f"{key}={value}" for key, value in self.labels if key != "uuid")
        day, minute = divmod(self.start, 24 * 60)
        when = f"{('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[day]} {minute // 60:02}:{minute % 60:02}"
        return f"{when} {self.end - self.start:4} min {self.severity:8} {self.alert} {about}"


def list_names(rules: Iterable[Path]) -> frozenset[str]:
    """Return the names of the metrics in the expressions of rules."""
    return frozenset(
        name
        for path in rules
        for rule in yaml.safe_load(path.read_text())["groups"][0]["rules"]
        for name in _METRIC.findall(_NO_METRIC.sub(" ", rule["expr"]))
        if name not in _OPERATORS
    )


def replay(
    series: Iterable[tuple[str, str]],
    rules: Sequence[Path],
    *,
    minutes: int,
    promtool: Path,
    directory: Path,
) -> list[Episode]:
    """Replay series through rules and return the alerts that fired.

    Args:
        series: Selectors and values of the series of all machines, as one Prometheus has them.
        rules: Files with one group each, in the order in which they are evaluated.
        minutes: Number of minutes to replay, from the beginning of the week.
        promtool: Path of the promtool program.
        directory: Directory for the files that promtool reads.

    Returns:
        Every period in which an alert fired, sorted.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "test.yml"
    groups = [_read_group(file) for file in rules]
    (directory / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in groups],
    }
    with path.open("w") as file:
        yaml.safe_dump(test, file)
        file.write("tests:\n- interval: 1m\n  input_series:\n")
        for selector, values in chain(_list_constants(rules, minutes), series):
            file.write(f"  - {{series: '{selector}', values: '{values}'}}\n")
        file.write("  promql_expr_test:\n")
        for minute in range(minutes):
            file.write(f"  - {{expr: '{QUESTION}', eval_time: {minute}m}}\n")
    environment = {**os.environ, "GOGC": "800"}  # fewer garbage collections make promtool faster
    done = subprocess.run(
        [promtool, "test", "rules", path],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    answers = list(_read_answers(done.stderr))
    if done.returncode != (1 if answers else 0):
        raise ValueError(done.stderr[:2000])
    return sorted(_find_episodes(answers))


def _read_group(path: Path) -> Group:
    (group,) = yaml.safe_load(path.read_text())["groups"]
    rules = [rule for rule in group["rules"] or () if not _is_constant(rule)]
    for rule in rules:
        rule.pop("annotations", None)
    return {"name": group["name"], "rules": rules}


def _is_constant(rule: Rule) -> bool:
    return _CONSTANT.fullmatch(rule["expr"].strip()) is not None and "record" in rule


def _list_constants(rules: Iterable[Path], minutes: int) -> Iterator[tuple[str, str]]:
    for path in rules:
        (group,) = yaml.safe_load(path.read_text())["groups"]
        for rule in filter(_is_constant, group["rules"] or ()):
            value = float(rule["expr"].strip().removeprefix("vector(").removesuffix(")"))
            yield rule["record"], f"{value:f}x{minutes}"


def _read_answers(text: str) -> Iterator[tuple[int, frozenset[tuple[tuple[str, str], ...]]]]:
    for answer in _ANSWER.finditer(text):
        parts = _PART_OF_TIME.findall(answer["time"])
        minute = sum(int(number) * _MINUTES[unit] for number, unit in parts)
        alerts = (tuple(_PAIR.findall(alert)) for alert in _ALERT.findall(answer["got"]))
        yield minute, frozenset(alerts)


def _find_episodes(
    answers: Iterable[tuple[int, frozenset[tuple[tuple[str, str], ...]]]],
) -> Iterator[Episode]:
    began: dict[tuple[tuple[str, str], ...], tuple[int, int]] = {}
    for minute, alerts in answers:
        for alert in alerts:
            start, last = began.get(alert, (minute, minute - 1))
            if last < minute - 1:
                yield _end(alert, start, last)
                start = minute
            began[alert] = (start, minute)
    for alert, (start, last) in began.items():
        yield _end(alert, start, last)


def _end(alert: tuple[tuple[str, str], ...], start: int, last: int) -> Episode:
    labels: Mapping[str, str] = dict(alert)
    about = tuple((key, value) for key, value in alert if key not in _IGNORED)
    return Episode(labels["alertname"], labels["severity"], start, last + 1, about)
