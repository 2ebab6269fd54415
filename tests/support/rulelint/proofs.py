"""Checks of the tests, runbooks and lists that accompany the rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import pairwise
from math import inf
from pathlib import Path

from promql_parser import VectorSelector, parse_duration

from tests.support.promql import walk
from tests.support.rulebook import Rule, read_names
from tests.support.rulelint.house import House
from tests.support.rulelint.wording import find_dashboard

HEADINGS = ["Meaning", "See it", "What to do", "Silence it"]
# The alert that `trainvitals notify --test` sends, which has no rule.
_NO_RULE = ("TestMessage",)
_RULE_FILES = "../../prometheus/rules/"

# The largest distance between two assertions around the end of a duration: half of the duration,
# or 180 s. Rates blur the edges, and the mutants show whether the exact duration is tested.
_NEIGHBOURS_RATIO = 0.5
_NEIGHBOURS_SECONDS = 180.0

Complaints = Iterator[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """One assertion of a test about an alert.

    Attributes:
        group: The number of the group of tests.
        seconds: The evaluation time.
        fires: Whether the alert is expected to fire.
        alerts: The expected alerts, with `exp_labels` and `exp_annotations`; empty if the test
            only checks whether the alert fires.
    """

    group: int
    seconds: float
    fires: bool
    alerts: tuple[Mapping[str, Mapping[str, str]], ...] = ()


def list_asked(document: Mapping[str, object], alert: str) -> list[Asked]:
    """Return the assertions of a test file about an alert, by group and time."""
    asked = []
    for number, group in enumerate(document.get("tests") or ()):  # type: ignore[var-annotated, arg-type]
        for test in group.get("alert_rule_test") or ():
            if test["alertname"] == alert:
                alerts = tuple(test.get("exp_alerts") or ())
                asked.append(Asked(number, _read_seconds(test["eval_time"]), bool(alerts), alerts))
        for test in group.get("promql_expr_test") or ():
            if re.search(rf"\bALERTS{{[^}}]*alertname=\"{alert}\"", test["expr"]):
                fires = bool(test.get("exp_samples"))
                asked.append(Asked(number, _read_seconds(test["eval_time"]), fires))
    return sorted(asked, key=lambda one: (one.group, one.seconds))


def _read_seconds(duration: str) -> float:
    is_nothing = re.fullmatch(r"0[a-z]*", duration)
    return 0.0 if is_nothing else parse_duration(duration).total_seconds()


def check_test_files(house: House) -> Complaints:
    """Check that every alert has a test file and every test file has an alert."""
    names = {alert.name for alert in house.book.alerts}
    for name in sorted(names - house.tests.keys()):
        yield f"{name}: no tests/rules/{name}.yml"
    for name in sorted(house.tests.keys() - names):
        yield f"tests/rules/{name}.yml tests no alert"


def check_test_heads(house: House) -> Complaints:
    """Check that a test file loads the real rules, sets their order, and names its groups."""
    for alert in house.book.alerts:
        document = house.tests.get(alert.name, {})
        files = [str(name) for name in document.get("rule_files") or ()]  # type: ignore[attr-defined]
        if document and not any(fnmatch(_RULE_FILES + alert.file.name, name) for name in files):
            yield f"{alert.name}: its tests do not read {_RULE_FILES}{alert.file.name}"
        before = [_RULE_FILES + name for name in ("thresholds.yml", "recording.yml")]
        order = [Path(one).stem for one in before if any(fnmatch(one, name) for name in files)]
        said = document.get("group_eval_order") or []
        if document and said[: len(order) + 1] != [*order, alert.group]:  # type: ignore[index]
            yield f"{alert.name}: group_eval_order does not begin with {', '.join(order)}"
        groups = list(document.get("tests") or ())  # type: ignore[call-overload]
        if not all("interval" in group for group in groups):
            yield f"{alert.name}: a group of tests has no interval, for which promtool takes 0"
        names = [group.get("name") for group in groups]
        if not all(names) or len(set(names)) != len(names):
            yield f"{alert.name}: a group of tests has no name of its own"


def check_firing_tests(house: House) -> Complaints:
    """Check that a test expects each alert to fire, always with all labels and annotations."""
    for alert in house.book.alerts:
        fired = [one for asked in _list(house, alert) for one in asked.alerts]
        if alert.name in house.tests and not fired:
            yield f"{alert.name}: no test sees it fire"
        for one in fired:
            labels, texts = one.get("exp_labels", {}), one.get("exp_annotations", {})
            if not alert.labels.keys() <= labels.keys():
                yield f"{alert.name}: a test lacks labels"
            elif not (texts.keys() <= alert.annotations.keys() and len(texts) > len("sd")):
                yield f"{alert.name}: a test lacks annotations"


def check_quiet_tests(house: House) -> Complaints:
    """Check that tests expect an alert not to fire just before `for` ends and after its end."""
    for alert in house.book.alerts:
        asked = _list(house, alert)
        if not asked or not _can_be_quiet(alert):
            continue
        pairs = [(a, b) for a, b in pairwise(asked) if a.group == b.group]
        starts = [b.seconds - a.seconds for a, b in pairs if not a.fires and b.fires]
        ends = [b.seconds - a.seconds for a, b in pairs if a.fires and not b.fires]
        if alert.for_ and min(starts, default=inf) > _give_distance(alert.for_):
            yield f"{alert.name}: no test sees it quiet just before `for` is over and fire then"
        if alert.keep_firing_for and min(ends, default=inf) > _give_distance(alert.keep_firing_for):
            yield f"{alert.name}: no test sees it fire until `keep_firing_for` is over and no longer"
        if not ends:
            yield f"{alert.name}: no test sees it end"


def _give_distance(duration: str) -> float:
    return max(_NEIGHBOURS_SECONDS, _NEIGHBOURS_RATIO * _read_seconds(duration))


def _list(house: House, alert: Rule) -> list[Asked]:
    return list_asked(house.tests.get(alert.name, {}), alert.name)


def _can_be_quiet(alert: Rule) -> bool:
    return any(isinstance(node, VectorSelector) for node in walk(alert.parse()))


def check_runbooks(house: House) -> Complaints:
    """Check that every alert has a runbook with the four sections, and no other runbook exists."""
    names = {alert.name for alert in house.book.alerts}
    for name in sorted(names - house.runbooks.keys()):
        yield f"{name}: no docs/runbooks/{name}.md"
    for name, text in house.runbooks.items():
        if name not in names:
            yield f"docs/runbooks/{name}.md is about no alert"
        if not text.startswith(f"# {name}\n"):
            yield f"{name}: its page has another title"
        if re.findall(r"^## (.*)$", text, re.MULTILINE) != HEADINGS:
            yield f"{name}: the parts of its page are not {', '.join(HEADINGS)}"
        if name not in text.partition("## Silence it")[2]:
            yield f"{name}: its page does not say how to silence it"


def check_commands(house: House) -> Complaints:
    """Check that every command and flag in a runbook or an annotation exists or is planned."""
    for name, text in _list_texts(house):
        for command, flags in find_commands(text):
            if command not in house.commands.keys() | house.awaited.commands:
                yield f"{name}: there is no `{command}`"
            known = house.commands.get(command, frozenset(flags))
            for flag in sorted(flags - known):
                yield f"{name}: `{command}` has no {flag}"


def find_commands(text: str) -> list[tuple[str, frozenset[str]]]:
    """Return the commands of the project in code, with their flags."""
    pattern = r"(?<![\w/.-])(trainvitals|make) ([a-z][a-z-]*)([^`|&;\n]*)"
    found = re.findall(pattern, text)
    return [
        (f"{who} {name}", frozenset(re.findall(r"--[a-z.-]+", rest))) for who, name, rest in found
    ]


def _list_texts(house: House) -> Iterable[tuple[str, str]]:
    yield from ((name, _keep_code(text)) for name, text in house.runbooks.items())
    for alert in house.book.alerts:
        yield alert.name, "\n".join(re.findall(r"trainvitals [a-z-]+", _flatten(alert)))


def _flatten(alert: Rule) -> str:
    return " ".join(alert.annotations.values())


def _keep_code(text: str) -> str:
    """Return the code of a Markdown page without the prose."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", rest)])


def check_metrics_in_runbooks(house: House) -> Complaints:
    """Check that every metric that a runbook queries is exported, recorded or planned."""
    records = {rule.name for rule in house.book.records}
    pattern = r"\b((?:accelerator|gpu|hpu|host|training|container|trainvitals|run|instance|threshold)[_:][a-z0-9_:]+)\b"
    for name, text in house.runbooks.items():
        for metric in sorted(set(re.findall(pattern, _keep_code(text))) - records):
            if house.find_metric(metric) is None:
                yield f"{name}: its page names {metric}, which is not served"


def check_awaited(house: House) -> Complaints:
    """Check that each planned part does not exist yet and is named by a rule or runbook."""
    book, awaited = house.book, house.awaited
    pages = "\n".join(house.runbooks.values()) + "\n".join(map(_flatten, book.alerts))
    selected = {
        name for rule in book.rules for part in rule.parse_all() for name in read_names(part)
    }
    linked = {find_dashboard(alert) for alert in book.alerts}
    for name in sorted(awaited.metrics):
        if name in house.served:
            yield f"{name} is served and no longer awaited"
        if name not in selected and name not in pages:
            yield f"{name} is awaited by nothing"
    for name in sorted(awaited.dashboards):
        if name in house.dashboards:
            yield f"dashboard {name} is there and no longer awaited"
        if name not in linked:
            yield f"dashboard {name} is awaited by nothing"
    for name in sorted(awaited.commands):
        if name in house.commands:
            yield f"`{name}` is there and no longer awaited"
        if name not in pages:
            yield f"`{name}` is awaited by nothing"


def check_alertmanager(house: House) -> Complaints:
    """Check that every alert in Alertmanager's configuration exists."""
    names = [alert.name for alert in house.book.alerts] + list(_NO_RULE)
    stated = re.findall(r"alertname\s*[=!]~?\s*\\?[\"']?([\w|()]+)", house.alertmanager)
    for pattern in sorted({one for text in stated for one in _split(text)}):
        if not any(re.fullmatch(pattern, name) for name in names):
            yield f"alertmanager: there is no alert {pattern}"


def _split(pattern: str) -> list[str]:
    """Return the alternatives of a pattern; the pattern (HPU|GPU)Hot has two."""
    found = re.fullmatch(r"(.*?)\((.*?)\)(\w*)(.*)", pattern)
    if not found:
        return [name for name in pattern.split("|") if name]
    before, _, start = found[1].rpartition("|")
    rest = _split(before) + _split(found[4])
    return [f"{start}{middle}{found[3]}" for middle in found[2].split("|")] + rest
