"""Everything that a board may ask for: what the rules may name, and what is made of rules.

The exporter's metrics come from the golden scrape with their types, labels and values; recording
rules and thresholds from the rule files. What Prometheus records of alerts follows from the alerts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from tests.support.rulebook import Rule, Rulebook
from tests.support.rulelint.house import House
from tests.support.rulelint.metrics import TARGET_LABELS, Metric
from tests.support.rulelint.produced import find_labels_of_rule

# What Prometheus and Alertmanager say of themselves that boards ask for and no rule does; 2.42 and
# 3.x serve each.
PIPELINE: Mapping[str, Metric] = {
    "prometheus_rule_group_interval_seconds": Metric("gauge", TARGET_LABELS | {"rule_group"}),
    "prometheus_rule_group_last_duration_seconds": Metric("gauge", TARGET_LABELS | {"rule_group"}),
}

# What is asked of Prometheus for every target, so that a board's variables choose it.
_OF_TARGETS = ("up", "scrape_duration_seconds", "scrape_samples_post_metric_relabeling")


def add_alerts(house: House, pipeline: Mapping[str, Metric] = PIPELINE) -> House:
    """Add to a house what Prometheus records of its alerts, and what is served besides."""
    labels = {label for alert in house.book.alerts for label in find_labels_of_rule(alert, house)}
    every = frozenset(labels) | {"alertname"} | TARGET_LABELS
    names = {"alertname": frozenset(alert.name for alert in house.book.alerts)}
    states = {"alertstate": frozenset({"firing", "pending"})}
    alerts = {
        "ALERTS": Metric("gauge", every | {"alertstate"}, names | states),
        "ALERTS_FOR_STATE": Metric("gauge", every, names),
    }
    return dataclasses.replace(house, elsewhere={**house.elsewhere, **pipeline, **alerts})


def is_of_a_target(name: str, house: House) -> bool:
    """Return whether a series is of the machines and runs that a board's variables choose."""
    if name.startswith("threshold:"):
        return False
    known = name in house.served or name in _OF_TARGETS or name.startswith("ALERTS")
    return known or bool(house.book.find_record(name))


def read_limits(book: Rulebook) -> dict[str, float]:
    """Return the number of each threshold."""
    return {
        rule.name: float(rule.expr.strip().removeprefix("vector(").removesuffix(")"))
        for rule in book.thresholds
    }


def add_questions(house: House, questions: Mapping[str, str]) -> House:
    """Return a house whose rules are its records and some questions, for the checks of rules to judge.

    Args:
        house: What there is.
        questions: PromQL by a name for it.
    """
    asked = [
        Rule(file=Path("boards"), group="boards", name=name, alert=True, expr=expr)
        for name, expr in questions.items()
    ]
    return dataclasses.replace(house, book=Rulebook((*house.book.records, *asked)))
