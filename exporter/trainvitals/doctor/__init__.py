"""Checks this machine before a training run starts, and reports the results."""

from trainvitals.doctor.checks import (
    CHECKS,
    QUICK_TIMEOUT_SECONDS,
    TIMEOUT_SECONDS,
    CheckRun,
    choose_checks,
    run_checks,
)
from trainvitals.doctor.finding import Check, Finding
from trainvitals.doctor.machine import Machine, Options
from trainvitals.doctor.report import format_json, format_list, format_report

__all__ = [
    "CHECKS",
    "QUICK_TIMEOUT_SECONDS",
    "TIMEOUT_SECONDS",
    "Check",
    "CheckRun",
    "Finding",
    "Machine",
    "Options",
    "choose_checks",
    "format_json",
    "format_list",
    "format_report",
    "run_checks",
]
