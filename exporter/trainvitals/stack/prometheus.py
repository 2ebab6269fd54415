"""What Prometheus says about its targets, its rules, its alerts and its Alertmanagers.

Whatever runs it, natively or in a container, is asked with the same questions over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

from trainvitals.stack.programs import HOST, fetch


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target of Prometheus.

    Attributes:
        job: The scrape job.
        url: What is scraped.
        health: `up`, `down`, or `unknown` before the first scrape.
        last_error: Why the last scrape failed; None when it did not.
    """

    job: str
    url: str
    health: str
    last_error: str | None


@dataclass(frozen=True, slots=True)
class UnhealthyRule:
    """One rule that was not, or could not be, evaluated.

    Attributes:
        group: The group that it stands in.
        name: The alert or the recorded series.
        error: Why the last evaluation failed; None before the first.
    """

    group: str
    name: str
    error: str | None


@dataclass(frozen=True, slots=True)
class RulesStatus:
    """The rules that Prometheus has loaded.

    Attributes:
        groups: How many groups.
        rules: How many rules, alerts and recordings together.
        unhealthy: Those whose last evaluation failed, or that wait for their first.
    """

    groups: int
    rules: int
    unhealthy: tuple[UnhealthyRule, ...]


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """One alert.

    Attributes:
        name: The alert.
        state: `firing` or `pending`.
        severity: `critical`, `warning`, `info` or `none`; empty where the rule names none.
        instance: The machine that it is about; empty where it is about none in particular.
        since: When its expression began to hold, as Prometheus writes it (RFC 3339, UTC).
    """

    name: str
    state: str
    severity: str
    instance: str
    since: str


@dataclass(frozen=True, slots=True)
class PrometheusStatus:
    """All that is asked of one Prometheus; everything is empty where it does not answer.

    Attributes:
        targets: What it scrapes.
        rules: What it evaluates; None where it does not answer.
        alerts: What fires or is about to, the most urgent first.
        alertmanagers: The Alertmanagers that it sends alerts to, as URLs.
    """

    targets: tuple[TargetStatus, ...] = ()
    rules: RulesStatus | None = None
    alerts: tuple[AlertStatus, ...] = ()
    alertmanagers: tuple[str, ...] = ()


class _Target(TypedDict):
    scrapePool: str
    scrapeUrl: str
    health: str
    lastError: str


class _Rule(TypedDict, total=False):
    name: str
    health: str
    lastError: str


class _Group(TypedDict):
    name: str
    rules: list[_Rule]


class _Alert(TypedDict):
    labels: dict[str, str]
    state: str
    activeAt: str


class _Alertmanager(TypedDict):
    url: str


class _Answers(TypedDict):
    activeTargets: list[_Target]
    groups: list[_Group]
    alerts: list[_Alert]
    activeAlertmanagers: list[_Alertmanager]


_URGENCY: Mapping[str, int] = {"critical": 0, "warning": 1, "info": 2, "none": 4}
_UNKNOWN_URGENCY = 3


def ask_prometheus(port: int, host: str = HOST) -> PrometheusStatus:
    """Ask the Prometheus that listens there everything that the status shows."""
    return PrometheusStatus(
        targets=list_targets(port, host),
        rules=read_rules(port, host),
        alerts=list_alerts(port, host),
        alertmanagers=list_alertmanagers(port, host),
    )


def list_targets(port: int, host: str = HOST) -> tuple[TargetStatus, ...]:
    """Ask about targets; empty where no Prometheus answers."""
    told = _ask(port, host, "/api/v1/targets?state=active")
    try:
        return tuple(
            TargetStatus(
                job=each["scrapePool"],
                url=each["scrapeUrl"],
                health=each["health"],
                last_error=each["lastError"] or None,
            )
            for each in (told["activeTargets"] if told else ())
        )
    except (KeyError, TypeError):
        return ()


def read_rules(port: int, host: str = HOST) -> RulesStatus | None:
    """Ask about rules; None where no Prometheus answers."""
    told = _ask(port, host, "/api/v1/rules")
    if told is None:
        return None
    try:
        rules = [(group["name"], rule) for group in told["groups"] for rule in group["rules"]]
        unhealthy = tuple(
            UnhealthyRule(group, rule["name"], rule.get("lastError") or None)
            for group, rule in rules
            if rule["health"] != "ok"
        )
        return RulesStatus(len(told["groups"]), len(rules), unhealthy)
    except (KeyError, TypeError):
        return None


def list_alerts(port: int, host: str = HOST) -> tuple[AlertStatus, ...]:
    """Ask what fires or is about to, the most urgent first; empty where none answers."""
    told = _ask(port, host, "/api/v1/alerts")
    try:
        alerts = [
            AlertStatus(
                name=each["labels"]["alertname"],
                state=each["state"],
                severity=each["labels"].get("severity", ""),
                instance=each["labels"].get("instance", ""),
                since=each["activeAt"],
            )
            for each in (told["alerts"] if told else ())
        ]
    except (KeyError, TypeError):
        return ()
    return tuple(sorted(alerts, key=_urgency))


def _urgency(alert: AlertStatus) -> tuple[bool, int, str, str]:
    rank = _URGENCY.get(alert.severity, _UNKNOWN_URGENCY)
    return alert.state != "firing", rank, alert.name, alert.instance


def list_alertmanagers(port: int, host: str = HOST) -> tuple[str, ...]:
    """Ask which Alertmanagers get the alerts, as URLs; empty where none does."""
    told = _ask(port, host, "/api/v1/alertmanagers")
    try:
        return tuple(each["url"] for each in (told["activeAlertmanagers"] if told else ()))
    except (KeyError, TypeError):
        return ()


def _ask(port: int, host: str, path: str) -> _Answers | None:
    page = fetch(port, path, host=host)
    try:
        return cast("_Answers", json.loads(page)["data"]) if page is not None else None
    except (ValueError, KeyError, TypeError):
        return None
