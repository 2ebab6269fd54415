"""A machine's monitoring stack: exporter, Prometheus, Alertmanager and Grafana."""

from trainvitals.stack.prometheus import AlertStatus, RulesStatus
from trainvitals.stack.settings import Settings, exposes_secrets, read_settings
from trainvitals.stack.status import (
    ProgramStatus,
    StackStatus,
    format_json,
    format_table,
)
from trainvitals.stack.ways import bring_up, describe, follow_logs, take_down

__all__ = [
    "AlertStatus",
    "ProgramStatus",
    "RulesStatus",
    "Settings",
    "StackStatus",
    "bring_up",
    "describe",
    "exposes_secrets",
    "follow_logs",
    "format_json",
    "format_table",
    "read_settings",
    "take_down",
]
