"""The series that a dashboard may query: those that rules may name, and those that rules create.

The exporter's metrics come from the golden scrape with their types, labels and values. Recording
rules and thresholds come from the rule files, and the series of alerts from the alert rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from tests.support.rulebook import Rule, Rulebook
from tests.support.rulelint.house import House
from tests.support.rulelint.metrics import TARGET_LABELS, Metric
from tests.support.rulelint.produced import find_labels_of_rule

# Metrics of Prometheus about itself that only dashboards query; versions 2.42 and 3.x serve them.
PIPELINE: Mapping[str, Metric] = {
    "prometheus_rule_group_interval_seconds": Metric("gauge", TARGET_LABELS | {"rule_group"}),
    "prometheus_rule_group_last_duration_seconds": Metric("gauge", TARGET_LABELS | {"rule_group"}),
}

# Series of every target, which a dashboard must select by its variables.
_OF_TARGETS = ("up", "scrape_duration_seconds", "scrape_samples_post_metric_relabeling")


def add_alerts(house: House, pipeline: Mapping[str, Metric] = PIPELINE) -> House:
    """Return a `House` with added metrics: those of alerts, and those of the pipeline."""
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
    """Return whether a series belongs to targets that a dashboard's variables select."""
    if name.startswith("threshold:"):
        return False
    known = name in house.served or name in _OF_TARGETS or name.startswith("ALERTS")
    return known or bool(house.book.find_record(name))


def read_limits(book: Rulebook) -> dict[str, float]:
    """Return the value of each threshold."""
    return {
        rule.name: float(rule.expr.strip().removeprefix("vector(").removesuffix(")"))
        for rule in book.thresholds
    }


def add_questions(house: House, questions: Mapping[str, str]) -> House:
    """Return a `House` with its recording rules and with queries as alerts, for the rule checks.

    Args:
        house: The existing rules and metrics.
        questions: The PromQL of each query by name.
    """
    asked = [
        Rule(file=Path("boards"), group="boards", name=name, alert=True, expr=expr)
        for name, expr in questions.items()
    ]
    return dataclasses.replace(house, book=Rulebook((*house.book.records, *asked)))
