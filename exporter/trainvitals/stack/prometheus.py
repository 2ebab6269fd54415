"""Queries Prometheus for `trainvitals status`: targets, rules, alerts and Alertmanagers.

If Prometheus does not respond, the results are empty, because a stack without Prometheus is a state
to be shown, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from trainvitals.foreign_numbers import read_count
from trainvitals.http.listen import Address
from trainvitals.sources.prometheus import ActiveAlert, Prometheus, PrometheusError, Target
from trainvitals.stack.programs import HOST

_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class UnhealthyRule:
    """A rule whose last evaluation failed or that has not been evaluated yet.

    Attributes:
        group: The name of the rule group.
        name: The name of the alert or of the recorded series.
        error: The error of the last evaluation; None before the first evaluation.
    """

    group: str
    name: str
    error: str | None


@dataclass(frozen=True, slots=True)
class RulesStatus:
    """The rules that Prometheus has loaded.

    Attributes:
        groups: The number of rule groups.
        rules: The number of alerting and recording rules.
        unhealthy: The rules whose last evaluation failed or that have not been evaluated yet.
    """

    groups: int
    rules: int
    unhealthy: tuple[UnhealthyRule, ...]


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """A firing or pending alert.

    Attributes:
        name: The name of the alert.
        state: The state of the alert: `firing` or `pending`.
        severity: The alert's severity: `critical`, `warning`, `info` or `none`; empty if the rule
            sets no severity.
        instance: The value of the label `instance`; empty if the alert has no such label.
        since: The time at which the alert became pending, in the format of RFC 3339, in UTC.
    """

    name: str
    state: str
    severity: str
    instance: str
    since: str


@dataclass(frozen=True, slots=True)
class PrometheusStatus:
    """The state of a Prometheus server; all fields are empty if the server does not respond.

    Attributes:
        targets: The targets that Prometheus scrapes.
        rules: The loaded rules; None if Prometheus does not respond.
        alerts: The firing and pending alerts, the most urgent first.
        alertmanagers: The URLs of the Alertmanagers to which Prometheus sends alerts.
        files_not_understood: The number of run logs and tables in which no line was understood.
        globs_unmatched: The number of flags for run logs and event files that match no file.
    """

    targets: tuple[Target, ...] = ()
    rules: RulesStatus | None = None
    alerts: tuple[AlertStatus, ...] = ()
    alertmanagers: tuple[str, ...] = ()
    files_not_understood: int = 0
    globs_unmatched: int = 0


_NOT_UNDERSTOOD = 'sum(training_followed_files{state="not_understood"})'
_UNMATCHED = "sum(training_file_globs_unmatched)"
_URGENCY: Mapping[str, int] = {"critical": 0, "warning": 1, "info": 2, "none": 4}
_UNKNOWN_URGENCY = 3


def read_status(port: int, host: str = HOST) -> PrometheusStatus:
    """Return the state of the Prometheus server at an address."""
    return PrometheusStatus(
        targets=list_targets(port, host),
        rules=read_rules(port, host),
        alerts=list_alerts(port, host),
        alertmanagers=list_alertmanagers(port, host),
        files_not_understood=_count(_NOT_UNDERSTOOD, port, host),
        globs_unmatched=_count(_UNMATCHED, port, host),
    )


def list_targets(port: int, host: str = HOST) -> tuple[Target, ...]:
    """Return the targets of Prometheus; an empty tuple if Prometheus does not respond."""
    with suppress(PrometheusError):
        return _find(port, host).list_targets()
    return ()


def read_rules(port: int, host: str = HOST) -> RulesStatus | None:
    """Return the state of the rules in Prometheus; None if Prometheus does not respond."""
    try:
        groups = _find(port, host).list_rules()
    except PrometheusError:
        return None
    unhealthy = tuple(
        UnhealthyRule(group.name, rule.name, rule.last_error)
        for group in groups
        for rule in group.rules
        if rule.health != "ok"
    )
    return RulesStatus(len(groups), sum(len(group.rules) for group in groups), unhealthy)


def list_alerts(port: int, host: str = HOST) -> tuple[AlertStatus, ...]:
    """Return firing and pending alerts, the most urgent first; empty without a response."""
    with suppress(PrometheusError):
        return tuple(sorted(map(_describe, _find(port, host).list_alerts()), key=_urgency))
    return ()


def list_alertmanagers(port: int, host: str = HOST) -> tuple[str, ...]:
    """Return the URLs of the Alertmanagers of Prometheus; an empty tuple without a response."""
    with suppress(PrometheusError):
        return _find(port, host).list_alertmanagers()
    return ()


def has_result(query: str, port: int, host: str = HOST) -> bool:
    """Return whether a Prometheus query returns at least one series; False without a response."""
    with suppress(PrometheusError):
        return bool(_find(port, host).query(query))
    return False


def _count(query: str, port: int, host: str) -> int:
    with suppress(PrometheusError):
        return sum(read_count(series.last) or 0 for series in _find(port, host).query(query))
    return 0


def _find(port: int, host: str) -> Prometheus:
    return Prometheus(f"http://{Address(host, port)}", _TIMEOUT_SECONDS)


def _describe(alert: ActiveAlert) -> AlertStatus:
    labels = alert.labels
    return AlertStatus(
        name=labels["alertname"],
        state=alert.state,
        severity=labels.get("severity", ""),
        instance=labels.get("instance", ""),
        since=alert.active_at,
    )


def _urgency(alert: AlertStatus) -> tuple[bool, int, str, str]:
    rank = _URGENCY.get(alert.severity, _UNKNOWN_URGENCY)
    return alert.state != "firing", rank, alert.name, alert.instance
