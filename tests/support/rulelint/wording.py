"""Checks of the names, labels and texts of alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.rulebook import Rule, is_threshold
from tests.support.rulelint.house import House
from tests.support.rulelint.produced import find_labels, find_labels_of_rule

SEVERITIES = ("critical", "warning", "info", "none")
COMPONENTS = ("accelerator", "training", "host", "container", "meta")
ANNOTATIONS = ("summary", "description", "runbook_url", "dashboard_url")
MAY_ANNOTATE = (*ANNOTATIONS, "resolved")

_RUNBOOKS = "http://localhost:9200/runbooks/"
_BOARDS = "http://localhost:3000/d/"
_INSTANCE = "?var-instance={{ $labels.instance | urlquery }}"
_RUN_IF_ANY = "{{ with $labels.run }}&var-run={{ . | urlquery }}{{ end }}"
_RUN = "&var-run={{ $labels.run | urlquery }}"
_COMMAND = re.compile(
    r"\b(?:First: (?:{{.*?}})?[a-z]|trainvitals [a-z]+|journalctl -|py-spy |curl -|du -|promtool )"
)
_SERVERS = re.compile(r"\b(?:prometheus|alertmanager)_\w+")

Complaints = Iterator[str]


def check_groups(house: House) -> Complaints:
    """Check that each file has one group of the same name, which is a component for alerts."""
    for rule in house.book.rules:
        if rule.file.stem != rule.group:
            yield f"{rule.name}: group {rule.group} in {rule.file.name}"
        if rule.alert and rule.group not in COMPONENTS:
            yield f"{rule.name}: an alert in group {rule.group}"
        if not rule.alert and rule.group not in ("thresholds", "recording"):
            yield f"{rule.name}: recorded in group {rule.group}"


def check_records(house: House) -> Complaints:
    """Check that each recording rule, unless a threshold, is named level:metric:operation."""
    for rule in house.book.records:
        pattern = r"(accelerator|run|instance):[a-z0-9_]+:[a-z0-9_]+"
        if not is_threshold(rule.name) and not re.fullmatch(pattern, rule.name):
            yield f"{rule.name} is not level:metric:operation"


def check_names(house: House) -> Complaints:
    """Check that the names of alerts are unique and written LikeThis."""
    names = [alert.name for alert in house.book.alerts]
    for name in names:
        if names.count(name) > 1 or not re.fullmatch(r"([A-Z]+[a-z]*)+", name):
            yield f"{name} is there twice or not written LikeThis"


def check_classes(house: House) -> Complaints:
    """Check that each alert has a known severity, and the name of its group as component."""
    for alert in house.book.alerts:
        # A template chooses between the words outside its actions.
        words = re.sub(r"{{.*?}}", " ", alert.labels.get("severity", "")).split()
        if not words or not set(words) <= set(SEVERITIES):
            yield f"{alert.name}: severity {alert.labels.get('severity')}"
        if alert.labels.get("component") != alert.group:
            yield f"{alert.name}: component {alert.labels.get('component')} in group {alert.group}"


def check_first_commands(house: House) -> Complaints:
    """Check that the description of each critical alert offers a first command."""
    for alert in house.book.alerts:
        if "critical" in alert.labels.get("severity", "") and not _COMMAND.search(
            alert.annotations.get("description", "")
        ):
            yield f"{alert.name}: critical, and offers no command to type first"


def check_templates(house: House) -> Complaints:
    """Check that templates name only possible labels, and that no label contains the value."""
    for alert in house.book.alerts:
        labels = find_labels_of_rule(alert, house)
        queried = frozenset().union(*(find_labels(part, house) for part in alert.parse_all()[1:]))
        for place, text in [*alert.labels.items(), *alert.annotations.items()]:
            named = set(re.findall(r"\$labels\.(\w+)", text)) - labels
            answered = set(re.findall(r"\.Labels\.(\w+)|\blabel \"(\w+)\"", text))
            named |= {one or other for one, other in answered} - queried
            for label in sorted(named):
                yield f"{alert.name}: {place} names {label}, which no series has"
        for place, text in alert.labels.items():
            if re.search(r"\$value|\.Value", text):
                yield f"{alert.name}: the value in label {place} makes a new alert of each value"


def check_annotations(house: House) -> Complaints:
    """Check that an alert has the four annotations, only `resolved` besides, and a fixed summary.

    The description must also be a sentence.
    """
    for alert in house.book.alerts:
        for name in ANNOTATIONS:
            if not alert.annotations.get(name, "").strip():
                yield f"{alert.name}: no {name}"
        for name in sorted(alert.annotations.keys() - set(MAY_ANNOTATE)):
            yield f"{alert.name}: annotation {name}"
        if "{{" in alert.annotations.get("summary", ""):
            yield f"{alert.name}: a summary that varies"
        # A command at the end has no full stop, so that a reader can copy the command.
        text = re.sub(r"\sFirst: .*$", "", alert.annotations.get("description", "").strip())
        if not text.endswith((".", "}}")):
            yield f"{alert.name}: the description is no sentence"


def check_links(house: House) -> Complaints:
    """Check that links lead to the alert's own runbook and to an existing or planned dashboard."""
    for alert in house.book.alerts:
        if alert.annotations.get("runbook_url") != _RUNBOOKS + alert.name:
            yield f"{alert.name}: runbook_url is not {_RUNBOOKS}{alert.name}"
        uid = find_dashboard(alert)
        if alert.annotations.get("dashboard_url") not in _give_links(alert, uid, house):
            yield f"{alert.name}: dashboard_url {alert.annotations.get('dashboard_url')}"
        if uid not in house.dashboards | house.awaited.dashboards:
            yield f"{alert.name}: no dashboard {uid}"


def find_dashboard(alert: Rule) -> str:
    """Return the uid of the dashboard that an alert links to, or an empty text."""
    found = re.match(re.escape(_BOARDS) + r"([\w-]+)", alert.annotations.get("dashboard_url", ""))
    return found[1] if found else ""


def _give_links(alert: Rule, uid: str, house: House) -> list[str]:
    """Return the permitted dashboard links for the labels of an alert."""
    labels = find_labels_of_rule(alert, house)
    # The dashboards list only hosts with an exporter, which Prometheus' own address is not.
    if "instance" not in labels or _SERVERS.search(alert.expr):
        return [_BOARDS + uid]
    with_instance = _BOARDS + uid + _INSTANCE
    if "run" not in labels:
        return [with_instance]
    return [with_instance + _RUN, with_instance + _RUN_IF_ANY]
