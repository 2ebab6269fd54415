"""Faults of the exporter and of those who watch it."""

from __future__ import annotations

from trainvitals.drill.faults.fault import Fault, turn
from trainvitals.drill.series import constant, rate

_UP = (constant("host_load1", 1),)
_CHANNEL = {"integration": "slack"}
_QUEUE = {"remote_name": "drill", "url": "http://drill.invalid"}

FAULTS = (
    Fault("ExporterDown", "the machine answers no more", _UP, (), is_silent=True),
    Fault("ExporterCollectorFailed", "a collector fails", _UP, _UP, is_failing=True),
    Fault(
        "PrometheusRuleFailures",
        "rules cannot be evaluated",
        (rate("prometheus_rule_evaluation_failures_total", 0, rule_group="drill"),),
        (rate("prometheus_rule_evaluation_failures_total", 1, rule_group="drill"),),
    ),
    turn(
        "PrometheusNotConnectedToAlertmanager",
        "a Prometheus finds no Alertmanager",
        "prometheus_notifications_alertmanagers_discovered",
        1,
        0,
    ),
    turn(
        "ConfigReloadFailed",
        "a Prometheus runs with an old configuration",
        "prometheus_config_last_reload_successful",
        1,
        0,
    ),
    Fault(
        "AlertmanagerNotificationsFailing",
        "half of the messages cannot be delivered",
        (
            rate("alertmanager_notifications_failed_total", 0, **_CHANNEL),
            rate("alertmanager_notifications_total", 2, **_CHANNEL),
        ),
        (
            rate("alertmanager_notifications_failed_total", 1, **_CHANNEL),
            rate("alertmanager_notifications_total", 2, **_CHANNEL),
        ),
    ),
    turn(
        "RemoteWriteBehind",
        "remote write is 10 minutes behind",
        "prometheus_remote_storage_queue_highest_sent_timestamp_seconds",
        1000,
        400,
        constant("prometheus_remote_storage_queue_highest_timestamp_seconds", 1000, **_QUEUE),
        **_QUEUE,
    ),
)
