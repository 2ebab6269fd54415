"""The monitoring stack of one machine: the exporter and the Prometheus that keeps its readings."""

from trainvitals.stack.logs import follow_logs
from trainvitals.stack.native import bring_up, take_down
from trainvitals.stack.settings import Settings, read_settings
from trainvitals.stack.status import (
    ProgramStatus,
    StackStatus,
    TargetStatus,
    describe,
    format_json,
    format_table,
)

__all__ = [
    "ProgramStatus",
    "Settings",
    "StackStatus",
    "TargetStatus",
    "bring_up",
    "describe",
    "follow_logs",
    "format_json",
    "format_table",
    "read_settings",
    "take_down",
]
